//! Host and Origin, checked before anything else (2025-11-25 `basic/transports`, Security Warning).
//!
//! The rules are those of rmcp's configuration; they are here too since rmcp's own check is private to it and does not
//! see what we answer.

use http::{HeaderValue, Method, Request, StatusCode, Uri, header, request::Parts, uri::Authority};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::never::NeverSessionManager,
};

use super::HttpOptions;

pub(super) struct Guard {
    hosts: Vec<Place>,
    /// Those of them that are names or IPv4 addresses, on any port: nearly every request is to one of these.
    plain: Vec<String>,
    origins: Vec<Origin>,
    any_origin: bool,
}

/// A host and, where it matters, a port.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    host: String,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Origin {
    Null,
    Of { scheme: String, place: Place },
}

impl Place {
    fn of(host: &str, port: Option<u16>) -> Self {
        Self {
            host: host.trim_matches(['[', ']']).to_ascii_lowercase(),
            port,
        }
    }

    fn allowed(text: &str) -> Self {
        match Authority::try_from(text) {
            Ok(authority) => Self::of(authority.host(), authority.port_u16()),
            // An IPv6 address without brackets is no authority.
            Err(_) => Self::of(text, None),
        }
    }

    fn matches(&self, other: &Place) -> bool {
        self.host == other.host && self.port.is_none_or(|port| other.port == Some(port))
    }
}

impl Origin {
    fn parse(text: &str) -> Option<Self> {
        if text.eq_ignore_ascii_case("null") {
            return Some(Self::Null);
        }
        let uri = Uri::try_from(text).ok()?;
        let scheme = uri.scheme_str()?.to_ascii_lowercase();
        let authority = uri.authority()?;
        let default = match scheme.as_str() {
            "http" => Some(80),
            "https" => Some(443),
            _ => None,
        };
        let place = Place::of(authority.host(), authority.port_u16().or(default));
        Some(Self::Of { scheme, place })
    }

    /// An entry of the list of allowed origins: with `:*`, or without a port, any port matches.
    fn allowed(text: &str) -> Option<Self> {
        let text = text.trim();
        let base = text.strip_suffix(":*").unwrap_or(text);
        let any_port = base.len() != text.len()
            || Uri::try_from(base).is_ok_and(|uri| uri.port_u16().is_none());
        let mut origin = Self::parse(base)?;
        if let Self::Of { place, .. } = &mut origin
            && any_port
        {
            place.port = None;
        }
        Some(origin)
    }
}

impl Guard {
    pub(super) fn new(options: &HttpOptions) -> Self {
        let hosts: Vec<Place> = options
            .allowed_hosts
            .iter()
            .map(|host| Place::allowed(host.trim()))
            .collect();
        let plain = |host: &&Place| {
            let named = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.');
            host.port.is_none() && !host.host.is_empty() && host.host.bytes().all(named)
        };
        Self {
            plain: hosts
                .iter()
                .filter(plain)
                .map(|place| place.host.clone())
                .collect(),
            hosts,
            origins: options
                .allowed_origins
                .iter()
                .filter_map(|origin| Origin::allowed(origin))
                .collect(),
            any_origin: options.any_origin,
        }
    }

    /// Whether the header names one of the plain hosts in the usual way: what does not is looked at closely.
    fn is_plain(&self, host: Option<&HeaderValue>) -> bool {
        let Some(Ok(text)) = host.map(HeaderValue::to_str) else {
            return false;
        };
        let (name, port) = match text.split_once(':') {
            Some((name, port)) => (name, port),
            None => (text, "0"),
        };
        port.bytes().all(|b| b.is_ascii_digit())
            && port.parse::<u16>().is_ok()
            && self.plain.iter().any(|plain| plain == name)
    }

    pub(super) fn check(&self, parts: &Parts) -> Result<(), &'static str> {
        if !self.hosts.is_empty() && !self.is_plain(parts.headers.get(header::HOST)) {
            let named = match parts.headers.get(header::HOST) {
                Some(host) => host
                    .to_str()
                    .ok()
                    .and_then(|host| Authority::try_from(host).ok()),
                None => parts.uri.authority().cloned(),
            };
            let named = named.ok_or("Forbidden: Host header is missing or malformed")?;
            let place = Place::of(named.host(), named.port_u16());
            if !self.hosts.iter().any(|allowed| allowed.matches(&place)) {
                return Err("Forbidden: Host header is not allowed");
            }
        }
        let Some(origin) = parts
            .headers
            .get(header::ORIGIN)
            .filter(|_| !self.any_origin)
        else {
            return Ok(());
        };
        let origin = origin
            .to_str()
            .ok()
            .and_then(|text| Origin::parse(text.trim()));
        let origin = origin.ok_or("Forbidden: Origin header is malformed")?;
        let allowed = self.origins.iter().any(|allowed| match (allowed, &origin) {
            (Origin::Null, Origin::Null) => true,
            (
                Origin::Of {
                    scheme: a,
                    place: allowed,
                },
                Origin::Of { scheme: b, place },
            ) => a == b && allowed.matches(place),
            _ => false,
        });
        if allowed {
            Ok(())
        } else {
            Err("Forbidden: Origin header is not allowed")
        }
    }
}

/// Whether a configuration without allowed origins was told to refuse every one. That switch cannot be read back, so
/// rmcp is asked: it judges the headers of an `OPTIONS` request at once, before it refuses the method.
pub(super) fn refuses_every_origin(config: &StreamableHttpServerConfig) -> bool {
    let service: StreamableHttpService<Probe, _> = StreamableHttpService::new(
        || Err(std::io::Error::other("never called")),
        std::sync::Arc::new(NeverSessionManager::default()),
        config.clone().disable_allowed_hosts(),
    );
    let probe = Request::builder()
        .method(Method::OPTIONS)
        .uri("http://localhost/")
        .header(header::HOST, "localhost")
        .header(header::ORIGIN, "http://localhost")
        .body(http_body_util::Empty::<bytes::Bytes>::new());
    let Ok(probe) = probe else {
        return false;
    };
    let asked = futures_util::FutureExt::now_or_never(service.handle(probe));
    asked.is_some_and(|response| response.status() == StatusCode::FORBIDDEN)
}

/// A server that is never asked anything.
struct Probe;

impl rmcp::ServerHandler for Probe {}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(options: &HttpOptions, host: &str, origin: Option<&str>) -> bool {
        let mut request = Request::builder().uri("/mcp").header(header::HOST, host);
        if let Some(origin) = origin {
            request = request.header(header::ORIGIN, origin);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        Guard::new(options).check(&parts).is_ok()
    }

    #[test]
    fn loopback_is_allowed_by_default_and_nothing_else() {
        let options = HttpOptions::default();
        for host in [
            "localhost",
            "localhost:8080",
            "127.0.0.1:1",
            "[::1]:9",
            "LOCALHOST",
        ] {
            assert!(check(&options, host, None), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:80", "127.0.0.2"] {
            assert!(!check(&options, host, None), "{host}");
        }
        for origin in [
            "http://localhost:6274",
            "http://127.0.0.1",
            "http://[::1]:3",
            "https://localhost",
        ] {
            assert!(check(&options, "localhost", Some(origin)), "{origin}");
        }
        for origin in [
            "http://evil.example",
            "null",
            "localhost",
            "",
            "http://localhost.evil.example",
            "file://x",
        ] {
            assert!(!check(&options, "localhost", Some(origin)), "{origin}");
        }
    }

    #[test]
    fn ports_and_null_as_listed() {
        let options = HttpOptions {
            allowed_hosts: vec!["api.example:8443".into(), "::1".into()],
            allowed_origins: vec!["https://app.example:443".into(), "null".into()],
            ..HttpOptions::default()
        };
        assert!(check(
            &options,
            "api.example:8443",
            Some("https://app.example")
        ));
        assert!(check(&options, "[::1]:3", Some("null")));
        assert!(!check(&options, "api.example", None));
        assert!(!check(&options, "[::1]", Some("https://app.example:8443")));
        let any = HttpOptions {
            allowed_hosts: vec![],
            any_origin: true,
            ..HttpOptions::default()
        };
        assert!(check(&any, "whatever", Some("http://evil.example")));
    }

    #[test]
    fn rmcps_own_switch_is_found_out() {
        assert!(!refuses_every_origin(&StreamableHttpServerConfig::default()));
        assert!(refuses_every_origin(
            &StreamableHttpServerConfig::default().enforce_origin_validation()
        ));
    }
}
