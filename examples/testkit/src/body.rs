//! The body of an HTTP/1.1 answer, as it comes.

use std::{
    io::{self, BufRead, BufReader, Read},
    net::TcpStream,
};

/// Reads the content, whichever way it is delimited.
pub(crate) struct Body {
    from: BufReader<TcpStream>,
    /// How much is left: of the body, or of the present chunk.
    left: u64,
    chunked: bool,
    ended: bool,
}

impl Body {
    pub(crate) fn new(headers: &[(String, String)], from: BufReader<TcpStream>) -> Self {
        let header = |name: &str| headers.iter().find(|(have, _)| have == name);
        let chunked =
            header("transfer-encoding").is_some_and(|(_, value)| value.contains("chunked"));
        let length = header("content-length").and_then(|(_, value)| value.parse().ok());
        Self {
            from,
            // Without either, the body ends with the connection.
            left: if chunked {
                0
            } else {
                length.unwrap_or(u64::MAX)
            },
            chunked,
            ended: false,
        }
    }

    fn next_chunk(&mut self) -> io::Result<()> {
        let mut line = String::new();
        // Every chunk but the first begins after the line end of the one before.
        while line.trim().is_empty() {
            line.clear();
            if self.from.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let size = line.split(';').next().unwrap_or_default().trim();
        self.left = u64::from_str_radix(size, 16).map_err(io::Error::other)?;
        self.ended = self.left == 0;
        Ok(())
    }
}

impl Read for Body {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.chunked && self.left == 0 && !self.ended {
            self.next_chunk()?;
        }
        if self.ended {
            return Ok(0);
        }
        let read = (&mut self.from).take(self.left).read(into)?;
        self.left -= read as u64;
        Ok(read)
    }
}
