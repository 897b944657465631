//! What goes out on a subscription (2026-07-28 `basic/patterns/subscriptions`).

use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{json, value::RawValue};

use super::{
    super::{envelope, object::RawObject},
    SUBSCRIPTION_META,
    answer::detailed_members,
};
use crate::task::{TaskId, TaskRecord};

struct SubscriptionMeta<'a>(&'a RawValue);

impl Serialize for SubscriptionMeta<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(SUBSCRIPTION_META, self.0)?;
        map.end()
    }
}

/// `notifications/tasks`: what `tasks/get` would say of the task now (ext-tasks, Task Status Notifications).
pub fn task_changed(subscription: &RawValue, record: &TaskRecord) -> Vec<u8> {
    struct Changed<'a>(&'a RawValue, &'a TaskRecord);
    impl Serialize for Changed<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut map = serializer.serialize_map(None)?;
            map.serialize_entry("_meta", &SubscriptionMeta(self.0))?;
            detailed_members(&mut map, self.1)?;
            map.end()
        }
    }
    envelope::notification("notifications/tasks", &Changed(subscription, record))
}

/// `notifications/tools/list_changed` on a subscription.
pub fn tools_changed(subscription: &RawValue) -> Vec<u8> {
    #[derive(Serialize)]
    struct Params<'a> {
        #[serde(rename = "_meta")]
        meta: SubscriptionMeta<'a>,
    }
    let meta = SubscriptionMeta(subscription);
    envelope::notification("notifications/tools/list_changed", &Params { meta })
}

/// The method of the acknowledgement.
pub const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

/// The acknowledgement of a subscription: what was accepted. `inner` are the parameters of the inner server's own, to
/// which ours is added.
pub fn acknowledged(
    subscription: &RawValue,
    inner: Option<&RawValue>,
    tasks: Option<&[TaskId]>,
    tools_changed: bool,
) -> Vec<u8> {
    let mut params = inner.and_then(RawObject::parse).unwrap_or_default();
    let accepted = {
        let mut accepted = params.object("notifications");
        if let Some(tasks) = tasks {
            accepted.set("taskIds", &tasks);
        }
        if tools_changed {
            accepted.set("toolsListChanged", &true);
        }
        serde_json::value::to_raw_value(&accepted).ok()
    };
    if inner.is_none() {
        params.set("_meta", &SubscriptionMeta(subscription));
    }
    if let Some(accepted) = accepted {
        params.set("notifications", &accepted);
    }
    envelope::notification(ACKNOWLEDGED, &params)
}

/// The response that ends a subscription gracefully.
pub fn ended(subscription: &RawValue) -> Vec<u8> {
    #[derive(Serialize)]
    struct Ended<'a> {
        #[serde(rename = "resultType")]
        kind: &'static str,
        #[serde(rename = "_meta")]
        meta: SubscriptionMeta<'a>,
    }
    let ended = Ended {
        kind: "complete",
        meta: SubscriptionMeta(subscription),
    };
    envelope::result(subscription, &ended)
}

/// On a pipe, what follows that response.
pub fn cancelled(subscription: &RawValue) -> Vec<u8> {
    let params = json!({"requestId": subscription, "reason": "the server is shutting down"});
    envelope::notification("notifications/cancelled", &params)
}
