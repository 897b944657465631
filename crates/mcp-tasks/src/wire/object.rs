//! A JSON object whose members keep their text and order, for patching what passes through.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
    ser::SerializeMap,
};
use serde_json::value::RawValue;

/// An object as a list of members. Untouched members are written as they came.
#[derive(Debug, Clone, Default)]
pub struct RawObject<'a> {
    members: Vec<(Cow<'a, str>, Cow<'a, RawValue>)>,
}

impl<'a> RawObject<'a> {
    /// Reads `raw` if it is an object.
    pub fn parse(raw: &'a RawValue) -> Option<Self> {
        serde_json::from_str(raw.get()).ok()
    }

    /// The member `name`.
    pub fn get(&self, name: &str) -> Option<&RawValue> {
        self.members
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, raw)| &**raw)
    }

    /// Sets the member `name`, in its old place if it was there.
    pub fn set(&mut self, name: &'static str, value: &impl Serialize) {
        let Ok(value) = serde_json::value::to_raw_value(value) else {
            return;
        };
        match self.members.iter_mut().find(|(key, _)| key == name) {
            Some((_, old)) => *old = Cow::Owned(value),
            None => self.members.push((Cow::Borrowed(name), Cow::Owned(value))),
        }
    }

    /// Removes the member `name`; whether it was there.
    pub fn remove(&mut self, name: &str) -> bool {
        let before = self.members.len();
        self.members.retain(|(key, _)| key != name);
        self.members.len() != before
    }

    /// The object member `name` as an object of its own; empty if it is missing or no object.
    pub fn object(&self, name: &str) -> RawObject<'_> {
        self.get(name)
            .and_then(RawObject::parse)
            .unwrap_or_default()
    }

    /// Adds a copy of a member.
    pub fn push_owned(&mut self, name: &str, value: &RawValue) {
        self.members
            .push((Cow::Owned(name.to_owned()), Cow::Owned(value.to_owned())));
    }

    /// The object as a JSON value.
    pub fn to_value(&self) -> serde_json::Value {
        let member = |(key, raw): &(Cow<'_, str>, Cow<'_, RawValue>)| {
            let value = serde_json::from_str(raw.get()).unwrap_or_default();
            (key.clone().into_owned(), value)
        };
        serde_json::Value::Object(self.members.iter().map(member).collect())
    }

    /// Whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The members, in their order.
    pub fn members(&self) -> impl Iterator<Item = (&str, &RawValue)> {
        self.members.iter().map(|(key, raw)| (&**key, &**raw))
    }

    /// The names of the members.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|(key, _)| &**key)
    }
}

impl Serialize for RawObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.members.len()))?;
        for (key, value) in &self.members {
            map.serialize_entry(key, &**value)?;
        }
        map.end()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for RawObject<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = RawObject<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(Key(key)) = map.next_key()? {
                    let value: &'de RawValue = map.next_value()?;
                    members.push((key, Cow::Borrowed(value)));
                }
                Ok(RawObject { members })
            }
        }
        deserializer.deserialize_map(Members)
    }
}

#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untouched_members_keep_text_and_order() {
        let text = r#"{"z":1.0e2,"a":{"b":[1, 2]},"big":123456789012345678901234567890}"#;
        let raw: &RawValue = serde_json::from_str(text).unwrap();
        let mut object = RawObject::parse(raw).unwrap();
        object.set("a", &true);
        object.set("new", &"x");
        assert!(!object.remove("absent"));
        assert_eq!(
            serde_json::to_string(&object).unwrap(),
            r#"{"z":1.0e2,"a":true,"big":123456789012345678901234567890,"new":"x"}"#
        );
    }
}
