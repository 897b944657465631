//! The load generator: HTTP/1.1 over kept-alive connections, one request in flight on each, every answer checked.
//!
//! One thread with a runtime of its own, the same for whatever is asked.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

use crate::{
    Fallible,
    measure::{self, percentile, rate},
};

/// A number that no request of this process had before.
pub(crate) fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A runtime on the present thread.
pub(crate) fn runtime() -> Fallible<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?)
}

/// The head of an answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) session: Option<String>,
    length: Option<usize>,
    chunked: bool,
}

/// A kept-alive connection.
pub(crate) struct Conn {
    stream: TcpStream,
    /// What came and was not taken yet begins at `taken`.
    came: Vec<u8>,
    taken: usize,
    body: Vec<u8>,
}

fn broken(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|part| part == wanted)
}

impl Conn {
    pub(crate) async fn open(to: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            came: Vec::with_capacity(4096),
            taken: 0,
            body: Vec::with_capacity(1024),
        })
    }

    pub(crate) async fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.stream.write_all(request).await
    }

    /// Sends a request and reads its answer to the end.
    pub(crate) async fn ask(&mut self, request: &[u8]) -> io::Result<(Head, &[u8])> {
        self.send(request).await?;
        let head = self.head().await?;
        self.rest(&head).await?;
        Ok((head, &self.body))
    }

    async fn more(&mut self) -> io::Result<()> {
        if self.taken == self.came.len() {
            self.came.clear();
            self.taken = 0;
        }
        match self.stream.read_buf(&mut self.came).await? {
            0 => Err(broken("the connection ended within an answer")),
            _ => Ok(()),
        }
    }

    /// Reads the head of an answer.
    pub(crate) async fn head(&mut self) -> io::Result<Head> {
        let end = loop {
            if let Some(end) = find(&self.came[self.taken..], b"\r\n\r\n") {
                break self.taken + end;
            }
            self.more().await?;
        };
        let text = std::str::from_utf8(&self.came[self.taken..end])
            .map_err(|_| broken("the head of an answer is no text"))?;
        let mut lines = text.split("\r\n");
        let status = lines
            .next()
            .and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let mut head = Head {
            status: status.ok_or_else(|| broken("an answer without a status"))?,
            ..Head::default()
        };
        for line in lines {
            let Some((name, value)) = line.split_once(':') else {
                continue;
            };
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                head.length = value.parse().ok();
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                head.chunked = value.eq_ignore_ascii_case("chunked");
            } else if name.eq_ignore_ascii_case("mcp-session-id") {
                head.session = Some(value.to_owned());
            }
        }
        self.taken = end + 4;
        self.body.clear();
        Ok(head)
    }

    /// Reads the body of an answer.
    pub(crate) async fn rest(&mut self, head: &Head) -> io::Result<&[u8]> {
        if head.chunked {
            while self.chunk().await? {}
        } else {
            let length = head.length.unwrap_or(0);
            self.fill(length).await?;
            let end = self.taken + length;
            self.body.extend_from_slice(&self.came[self.taken..end]);
            self.taken = end;
        }
        Ok(&self.body)
    }

    /// Waits until `length` bytes are there to be taken.
    async fn fill(&mut self, length: usize) -> io::Result<()> {
        while self.came.len() - self.taken < length {
            self.more().await?;
        }
        Ok(())
    }

    /// Reads one chunk of a body; whether it was not the last.
    pub(crate) async fn chunk(&mut self) -> io::Result<bool> {
        let line = loop {
            if let Some(end) = find(&self.came[self.taken..], b"\r\n") {
                break self.taken + end;
            }
            self.more().await?;
        };
        let size = std::str::from_utf8(&self.came[self.taken..line])
            .ok()
            .and_then(|text| usize::from_str_radix(text, 16).ok())
            .ok_or_else(|| broken("a chunk without a size"))?;
        self.taken = line + 2;
        self.fill(size + 2).await?;
        let end = self.taken + size;
        self.body.extend_from_slice(&self.came[self.taken..end]);
        self.taken = end + 2;
        Ok(size > 0)
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }
}

/// What is asked on a connection, and which answers are right.
pub(crate) trait Work: Send + Sync + 'static {
    /// Writes the whole request `id` of connection `conn`. What it returns is given to [`check`](Self::check).
    fn request(&self, conn: usize, id: u64, out: &mut Vec<u8>) -> usize;

    /// Whether the answer to request `id` is right.
    fn check(&self, conn: usize, id: u64, what: usize, head: &Head, body: &[u8]) -> bool;
}

/// What one round showed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Round {
    /// Answers per second.
    pub(crate) rate: f64,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    /// Processor time of the server per answer.
    pub(crate) cpu: Option<Duration>,
    /// The share of the round in which the generator's thread was busy.
    pub(crate) generator: f64,
}

/// Asks on all connections for a while, as fast as the answers come.
pub(crate) async fn round<W: Work>(
    conns: &mut Vec<Conn>,
    work: &Arc<W>,
    time: Duration,
    server: u32,
) -> Fallible<Round> {
    let (cpu, own) = (
        measure::cpu_time(server),
        measure::cpu_time(std::process::id()),
    );
    let began = Instant::now();
    let until = began + time;
    let mut asking = JoinSet::new();
    for (number, mut conn) in conns.drain(..).enumerate() {
        let work = work.clone();
        asking.spawn(async move {
            let mut times = Vec::with_capacity(4096);
            let mut request = Vec::with_capacity(1024);
            while Instant::now() < until {
                let id = next_id();
                request.clear();
                let what = work.request(number, id, &mut request);
                let asked = Instant::now();
                let (head, body) = conn.ask(&request).await?;
                times.push(asked.elapsed());
                if !work.check(number, id, what, &head, body) {
                    let body = String::from_utf8_lossy(body);
                    return Err(broken(&format!(
                        "a wrong answer: {} {body}\nto {}",
                        head.status,
                        String::from_utf8_lossy(&request)
                    )));
                }
            }
            Ok((number, conn, times))
        });
    }
    let mut back = Vec::new();
    let mut times = Vec::new();
    while let Some(ended) = asking.join_next().await {
        let (number, conn, mut taken) = ended??;
        back.push((number, conn));
        times.append(&mut taken);
    }
    let took = began.elapsed();
    let used = |before: Option<Duration>, pid| {
        let after = measure::cpu_time(pid)?;
        before.map(|before| after.saturating_sub(before))
    };
    let cpu = used(cpu, server);
    let own = used(own, std::process::id()).unwrap_or_default();
    back.sort_by_key(|(number, _)| *number);
    conns.extend(back.into_iter().map(|(_, conn)| conn));
    times.sort_unstable();
    let answers = u32::try_from(times.len()).unwrap_or(u32::MAX).max(1);
    Ok(Round {
        rate: rate(times.len(), took),
        p50: percentile(&times, 50),
        p99: percentile(&times, 99),
        cpu: cpu.map(|cpu| cpu / answers),
        generator: own.as_secs_f64() / took.as_secs_f64(),
    })
}

/// The medians of several rounds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rounds(Vec<Round>);

impl Rounds {
    pub(crate) fn push(&mut self, round: Round) {
        self.0.push(round);
    }

    fn of(&self, figure: impl Fn(&Round) -> f64) -> f64 {
        measure::median(self.0.iter().map(figure))
    }

    pub(crate) fn rate(&self) -> f64 {
        self.of(|round| round.rate)
    }

    pub(crate) fn p50(&self) -> Duration {
        Duration::from_secs_f64(self.of(|round| round.p50.as_secs_f64()))
    }

    pub(crate) fn p99(&self) -> Duration {
        Duration::from_secs_f64(self.of(|round| round.p99.as_secs_f64()))
    }

    pub(crate) fn cpu(&self) -> Option<Duration> {
        let all = self.0.iter().all(|round| round.cpu.is_some());
        all.then(|| {
            Duration::from_secs_f64(self.of(|round| round.cpu.unwrap_or_default().as_secs_f64()))
        })
    }

    pub(crate) fn generator(&self) -> f64 {
        self.of(|round| round.generator)
    }

    /// How this compares to `other`: the median of the ratios of rounds that followed each other.
    pub(crate) fn rate_ratio(&self, other: &Rounds) -> f64 {
        let pairs = self.0.iter().zip(&other.0);
        measure::median(pairs.map(|(mine, theirs)| mine.rate / theirs.rate.max(1e-9)))
    }
}
