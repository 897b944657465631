//! What can be told of a message that is too large to be kept.

/// Longer ids than this are nobody's.
const LONGEST: usize = 256;

/// Reads a JSON object byte by byte and keeps nothing of it but its top-level `id` and whether it has a `method`.
#[derive(Debug, Default)]
pub(super) struct Skim {
    depth: usize,
    in_string: bool,
    escaped: bool,
    key: Vec<u8>,
    token: Vec<u8>,
    id: Option<Vec<u8>>,
    /// Whether it is a request or a notification.
    pub(super) method: bool,
}

impl Skim {
    /// Reads on.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.byte(*byte));
    }

    /// The JSON text of the id.
    pub(super) fn id(&self) -> Option<&str> {
        std::str::from_utf8(self.id.as_deref()?).ok()
    }

    fn byte(&mut self, byte: u8) {
        if self.in_string {
            self.keep(byte);
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                self.keep(byte);
            }
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                if self.depth == 1 {
                    self.member();
                }
                self.depth = self.depth.saturating_sub(1);
            }
            b':' if self.depth == 1 => self.key = std::mem::take(&mut self.token),
            b',' if self.depth == 1 => self.member(),
            byte if byte.is_ascii_whitespace() => {}
            byte => self.keep(byte),
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.depth == 1 && self.token.len() < LONGEST {
            self.token.push(byte);
        }
    }

    fn member(&mut self) {
        let token = std::mem::take(&mut self.token);
        match self.key.as_slice() {
            b"\"id\"" if token.len() < LONGEST => self.id = Some(token),
            b"\"method\"" => self.method = true,
            _ => {}
        }
        self.key.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_is_found_wherever_it_stands() {
        let skim = |text: &str| {
            let mut skim = Skim::default();
            skim.feed(text.as_bytes());
            (skim.id().map(str::to_owned), skim.method)
        };
        let big = format!(
            r#"{{"id":"no","a":[{{"method":"\"}}"}}],"x":"{}"}}"#,
            "y".repeat(999)
        );
        for text in [
            format!(r#"{{"jsonrpc":"2.0","id":"tc:7","result":{big}}}"#),
            format!(r#" {{ "result" : {big}, "id" : "tc:7" , "jsonrpc":"2.0" }}"#),
        ] {
            assert_eq!(skim(&text), (Some("\"tc:7\"".to_owned()), false));
        }
        assert_eq!(
            skim(r#"{"method":"ping","id":12,"params":{"id":3}}"#),
            (Some("12".to_owned()), true)
        );
        assert_eq!(skim(r#"{"result":{}}"#), (None, false));
        assert_eq!(skim("}}]],,\"id\":1"), (None, false));
    }
}
