//! Answers that the command line gives to questions that may come.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::form::Field;
use crate::values::{self, Pair};

/// `--answer` and `--answers`.
#[derive(clap::Args, Debug, Clone, Default)]
pub(crate) struct AnswerArgs {
    /// Answer this field of any question with this value; may be given again. NAME:=JSON for a value of any type
    #[arg(long = "answer", value_name = "NAME=VALUE", value_parser = values::pair)]
    answer: Vec<Pair>,
    /// The same, as a JSON object
    #[arg(long, value_name = "JSON", value_parser = values::object)]
    answers: Option<Map<String, Value>>,
}

impl AnswerArgs {
    pub(super) fn is_empty(&self) -> bool {
        self.answer.is_empty() && self.answers.is_none()
    }

    /// What they give to the fields of this form.
    ///
    /// # Errors
    /// The answer that does not fit.
    pub(super) fn fill(
        &self,
        schema: &Value,
        fields: &[Arc<Field>],
    ) -> Result<Map<String, Value>, String> {
        let mut filled = Map::new();
        for field in fields {
            let name = &field.name;
            let pair = self.answer.iter().rev().find(|pair| pair.name == *name);
            let whole = self.answers.as_ref().and_then(|answers| answers.get(name));
            let value = match (pair, whole) {
                (Some(pair), _) => pair.typed(schema),
                (None, Some(value)) => Ok(value.clone()),
                (None, None) => continue,
            };
            let value = value.and_then(|value| field.check(&value).map(|()| value));
            filled.insert(
                name.clone(),
                value.map_err(|why| format!("--answer {name:?}: {why}"))?,
            );
        }
        Ok(filled)
    }
}
