//! Who answers questions in these tests.

use std::sync::{Arc, Mutex};

use rmcp::{
    ClientHandler,
    model::{
        ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationCapability,
        ErrorData,
    },
    service::{RequestContext, RoleClient},
};
use serde_json::json;
use tokio::sync::{Notify, mpsc};

/// Answers names with the question's last word but one, and confirms everything.
#[derive(Clone)]
pub(crate) struct Person {
    asked: Arc<Mutex<Vec<String>>>,
    /// Told of every question.
    tell: mpsc::UnboundedSender<String>,
    /// What has to happen before a question is answered.
    thinks: Option<Arc<Notify>>,
}

impl Person {
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<String>) {
        let (tell, told) = mpsc::unbounded_channel();
        let asked = Arc::default();
        (
            Self {
                asked,
                tell,
                thinks: None,
            },
            told,
        )
    }

    pub(crate) fn thinking(mut self) -> (Self, Arc<Notify>) {
        let go_on = Arc::new(Notify::new());
        self.thinks = Some(go_on.clone());
        (self, go_on)
    }

    /// Every question so far, sorted.
    pub(crate) fn asked(&self) -> Vec<String> {
        let mut asked = self.asked.lock().unwrap().clone();
        asked.sort();
        asked
    }
}

impl ClientHandler for Person {
    #[allow(deprecated)] // sampling, by rmcp, for revisions after 2026-07-28
    fn get_info(&self) -> ClientConfig {
        let mut config = ClientConfig::default();
        config.capabilities.elicitation = Some(ElicitationCapability::default());
        config.capabilities.sampling = Some(rmcp::model::SamplingCapability::default());
        config
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let ElicitRequestParams::FormElicitationParams { message, .. } = request else {
            return Ok(ElicitResult::new(ElicitationAction::Decline));
        };
        self.asked.lock().unwrap().push(message.clone());
        let _ = self.tell.send(message.clone());
        if let Some(go_on) = &self.thinks {
            tokio::select! {
                () = go_on.notified() => {}
                () = context.ct.cancelled() => return Ok(ElicitResult::new(ElicitationAction::Cancel)),
            }
        }
        let name = message.split(' ').rev().nth(1).unwrap_or_default();
        let content = json!({"name": name, "confirm": true});
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content))
    }

    #[allow(deprecated)]
    async fn create_message(
        &self,
        params: rmcp::model::CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<rmcp::model::CreateMessageResult, ErrorData> {
        let asked = serde_json::to_value(&params.messages[0]).unwrap();
        let text = format!("about {}", asked["content"]["text"].as_str().unwrap());
        Ok(rmcp::model::CreateMessageResult::new(
            rmcp::model::SamplingMessage::assistant_text(text),
            "a-model".to_owned(),
        ))
    }
}
