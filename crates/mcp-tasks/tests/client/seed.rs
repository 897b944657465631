//! The scenario it all began with, and people who take their time.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use mcp_tasks::{
    Tasks,
    client::{CallOptions, TaskClient, TaskStatus},
};
use rmcp::{
    ClientHandler,
    model::{ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction, ErrorData},
    service::{RequestContext, RoleClient},
};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    Person, call,
    ends::{Ends, WAYS, overheard},
    lines::{play, sockets_have_time},
    script::*,
    support::tools::{self, Gates},
    text_of,
};

/// Needs this long for an answer.
#[derive(Clone, Default)]
struct Slow {
    thinks: Duration,
    asked: Arc<Mutex<u32>>,
}

impl ClientHandler for Slow {
    fn get_info(&self) -> ClientConfig {
        crate::elicits()
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        *self.asked.lock().unwrap() += 1;
        tokio::time::sleep(self.thinks).await;
        let mut answer = ElicitResult::new(ElicitationAction::Accept);
        answer.content = Some(json!({"name": "Ada"}));
        Ok(answer)
    }
}

fn server() -> Tasks {
    let tools = tools::tools(&Gates::default());
    Tasks::builder().tools(tools).bearer_ids().build().unwrap()
}

/// Call, poll by hand until it wants something, fetch the result.
async fn by_hand(client: &TaskClient) -> String {
    let task = client
        .call_tool_task(call("ask"), CallOptions::new())
        .await
        .unwrap();
    let start = Instant::now();
    loop {
        let info = task.get().await.unwrap();
        // Over lines the question may have come, and be answered, before we look.
        if info.status != TaskStatus::Working {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(info.poll_interval.unwrap()).await;
    }
    let text = text_of(&task.result().await.unwrap()).to_owned();
    assert_eq!(task.get().await.unwrap().status, TaskStatus::Completed);
    text
}

// The seed scenario. F-34, F-39, B46
#[tokio::test]
async fn polled_by_hand_a_question_is_answered_when_the_result_is_fetched() {
    for way in WAYS {
        let person = Slow::default();
        let ends = Ends::connect(way, &server(), TaskClient::builder(person.clone())).await;
        assert_eq!(by_hand(&ends.client).await, "accept Ada", "{way:?}");
        assert_eq!(*person.asked.lock().unwrap(), 1, "{way:?}");
        let [answer] = &ends.heard.answers()[..] else {
            panic!("{way:?}: one answer")
        };
        let get = &ends.heard.sent("tasks/get")[0];
        assert_eq!(
            answer["result"]["_meta"][RELATED]["taskId"], get["params"]["taskId"],
            "{way:?}"
        );
    }
}

// B46
#[tokio::test(start_paused = true)]
async fn the_same_against_a_server_that_asks_on_tasks_result_only() {
    let (mut script, io) = Script::pair();
    let person = Person::default();
    let server = async {
        script.until_created().await;
        script.serve("tasks/get", task("working")).await;
        script.serve("tasks/get", task("input_required")).await;
        // The driver looks for itself.
        script.serve("tasks/get", task("input_required")).await;
        let waiting = script.expect("tasks/result").await;
        script.send(question(json!(0), None)).await;
        let answered = script.expect_answer().await;
        assert_eq!(
            (&answered["id"], &answered["result"]["_meta"][RELATED]),
            (&json!(0), &json!({"taskId": "T"}))
        );
        script.serve("tasks/get", task("completed")).await;
        script.send(answer(&waiting, &text("done"))).await;
    };
    let client = async {
        let client = TaskClient::connect(person.clone(), io).await.unwrap();
        let task = client
            .call_tool_task(call("slow"), CallOptions::new())
            .await
            .unwrap();
        assert_eq!(task.get().await.unwrap().status, TaskStatus::Working);
        assert_eq!(task.get().await.unwrap().status, TaskStatus::InputRequired);
        assert_eq!(text_of(&task.result().await.unwrap()), "done");
    };
    play(server, client).await;
    assert_eq!(person.asked(), 1);
}

// F-34
#[tokio::test(start_paused = true)]
async fn an_answer_after_eleven_minutes_is_in_time_over_lines() {
    let (read, write, _) = overheard(server());
    let person = Slow {
        thinks: Duration::from_secs(11 * 60),
        ..Slow::default()
    };
    let client = TaskClient::connect(person.clone(), (read, write))
        .await
        .unwrap();
    let start = Instant::now();
    let result = client.call_tool(call("ask")).await.unwrap();
    assert_eq!(text_of(&result), "accept Ada");
    assert!(start.elapsed() >= person.thinks);
    assert_eq!(*person.asked.lock().unwrap(), 1);
}

// F-34
#[tokio::test(start_paused = true)]
async fn an_answer_after_eleven_minutes_is_in_time_over_http() {
    sockets_have_time();
    let mut script = HttpScript::start().await;
    let url = script.url();
    let person = Slow {
        thinks: Duration::from_secs(11 * 60),
        ..Slow::default()
    };
    let server = async {
        script.handshake().await;
        script.gets.recv().await.unwrap().status(405);
        script.serve("tools/list", tools()).await;
        let created = json!({"task": task("working")});
        script.serve("tools/call", created).await;
        script.serve("tasks/get", task("input_required")).await;
        let waiting = script.expect("tasks/result").await;
        let body = waiting.body.clone();
        let stream = waiting.stream();
        stream.send(event(&question(json!("q"), None))).unwrap();
        let mut unhurried = task("input_required");
        unhurried["pollInterval"] = json!(5000);
        loop {
            let request = script.posts.recv().await.unwrap();
            if request.body["method"] == "tasks/get" {
                request.result(&unhurried);
                continue;
            }
            assert_eq!(
                (&request.body["id"], &request.body["result"]["content"]),
                (&json!("q"), &json!({"name": "Ada"}))
            );
            break request.status(202);
        }
        stream.send(event(&answer(&body, &text("done")))).unwrap();
        // The plain call is asked on its own stream, and waits there as long.
        let call = script.expect("tools/call").await;
        let body = call.body.clone();
        let stream = call.stream();
        let mut plain = question(json!("p"), None);
        plain["params"].as_object_mut().unwrap().remove("_meta");
        stream.send(event(&plain)).unwrap();
        let answered = script.posts.recv().await.unwrap();
        assert_eq!(answered.body["id"], "p");
        answered.status(202);
        stream.send(event(&answer(&body, &text("done")))).unwrap();
    };
    let client = async {
        let client = TaskClient::http(person.clone(), url).await.unwrap();
        for tool in ["slow", "plain"] {
            let start = Instant::now();
            let result = client.call_tool(call(tool)).await.unwrap();
            assert_eq!(text_of(&result), "done");
            assert!(start.elapsed() >= person.thinks);
        }
    };
    play(server, client).await;
    assert_eq!(*person.asked.lock().unwrap(), 2);
}
