//! Which questions a requestor can be asked.

use serde_json::Value;

use super::{InputKind, RawJson};

/// Which questions a requestor declared to answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Permissions {
    /// `elicitation`, with `form` or without any mode (which means form).
    pub elicit_form: bool,
    /// `elicitation.url`.
    pub elicit_url: bool,
    /// `sampling`.
    pub sample: bool,
    /// `sampling.tools`.
    pub sample_tools: bool,
    /// `roots`.
    pub roots: bool,
}

impl Permissions {
    /// Reads a client's declared capabilities. `null` members count as absent.
    pub fn of(capabilities: Option<&RawJson>) -> Self {
        let Some(Value::Object(declared)) = capabilities.and_then(|raw| raw.parse::<Value>().ok())
        else {
            return Self::default();
        };
        let member = |of: &Value, name: &str| of.get(name).is_some_and(Value::is_object);
        let mut permissions = Self::default();
        if let Some(elicitation) = declared
            .get("elicitation")
            .filter(|value| value.is_object())
        {
            permissions.elicit_url = member(elicitation, "url");
            permissions.elicit_form = member(elicitation, "form") || !permissions.elicit_url;
        }
        if let Some(sampling) = declared.get("sampling").filter(|value| value.is_object()) {
            permissions.sample = true;
            permissions.sample_tools = member(sampling, "tools");
        }
        permissions.roots = declared.get("roots").is_some_and(Value::is_object);
        permissions
    }

    /// Whether a question of this kind may be put; `Err` names the capability that is missing.
    ///
    /// # Errors
    /// The name of the missing capability.
    pub fn allow(self, kind: InputKind, params: &RawJson) -> Result<(), &'static str> {
        let (allowed, name) = match kind {
            InputKind::ElicitForm => (self.elicit_form, "elicitation"),
            InputKind::ElicitUrl => (self.elicit_url, "elicitation.url"),
            InputKind::ListRoots => (self.roots, "roots"),
            InputKind::Sample if !self.sample => (false, "sampling"),
            InputKind::Sample => {
                let uses_tools = params.parse::<Value>().is_ok_and(|params| {
                    params.get("tools").is_some() || params.get("toolChoice").is_some()
                });
                (self.sample_tools || !uses_tools, "sampling.tools")
            }
        };
        if allowed { Ok(()) } else { Err(name) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Permissions {
        Permissions::of(Some(&RawJson::from_text(text).unwrap()))
    }

    #[test]
    fn elicitation_without_a_mode_is_form_only() {
        assert!(of(r#"{"elicitation":{}}"#).elicit_form);
        assert!(!of(r#"{"elicitation":{}}"#).elicit_url);
        let url = of(r#"{"elicitation":{"url":{}}}"#);
        assert!(url.elicit_url && !url.elicit_form);
        let both = of(r#"{"elicitation":{"form":{},"url":{}}}"#);
        assert!(both.elicit_form && both.elicit_url);
    }

    #[test]
    fn null_members_count_as_absent() {
        assert_eq!(
            of(r#"{"elicitation":null,"sampling":null,"roots":null}"#),
            Permissions::default()
        );
        assert_eq!(Permissions::of(None), Permissions::default());
    }

    #[test]
    fn tools_in_sampling_need_their_own_capability() {
        let plain = RawJson::from_text(r#"{"messages":[],"maxTokens":1}"#).unwrap();
        let tools = RawJson::from_text(r#"{"messages":[],"maxTokens":1,"tools":[]}"#).unwrap();
        let sampling = of(r#"{"sampling":{}}"#);
        assert_eq!(sampling.allow(InputKind::Sample, &plain), Ok(()));
        assert_eq!(
            sampling.allow(InputKind::Sample, &tools),
            Err("sampling.tools")
        );
        assert_eq!(
            of(r#"{"sampling":{"tools":{}}}"#).allow(InputKind::Sample, &tools),
            Ok(())
        );
        assert_eq!(of("{}").allow(InputKind::Sample, &tools), Err("sampling"));
    }
}
