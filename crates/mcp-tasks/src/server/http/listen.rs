//! The stream of a `subscriptions/listen`: the inner server's, where it takes part, with ours between its events.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::Stream;
use http::{Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::time::Sleep;

use super::{BodyError, McpBody, is_sse, patching, sse};
use crate::{
    runtime::Runtime,
    server::v2026_07_28::Subscription,
    task::ErrorObject,
    wire::{envelope::Message, error::METHOD_NOT_FOUND, v2026_07_28 as g2},
};

/// The response to a subscription; `response` is the inner server's.
pub(super) async fn open(
    runtime: &Runtime,
    subscription: Arc<Subscription>,
    response: Response<McpBody>,
    keep_alive: Duration,
) -> Response<McpBody> {
    let inner = if response.status().is_success() && is_sse(response.headers()) {
        Some(response.into_body())
    } else {
        let (parts, body) = response.into_parts();
        let bytes = match body.collect().await {
            Ok(collected) => collected.to_bytes(),
            Err(_broken) => Bytes::new(),
        };
        if !has_no_subscriptions(parts.status, &bytes) {
            let body = http_body_util::Full::new(bytes);
            let body = body.map_err(|never| match never {}).boxed_unsync();
            return Response::from_parts(parts, body);
        }
        None
    };
    let ours = subscription.clone().messages(runtime.clone(), false);
    let body = ListenBody {
        inner,
        acknowledged: false,
        subscription,
        ours: Box::pin(ours),
        keep_alive,
        quiet: Box::pin(tokio::time::sleep(keep_alive)),
    };
    sse::sse_response(body.boxed_unsync())
}

/// Whether the inner server does not know the method: then the subscription is ours alone.
fn has_no_subscriptions(status: StatusCode, body: &[u8]) -> bool {
    match Message::parse(body) {
        Ok(Message::Error { error, .. }) => serde_json::from_str::<ErrorObject>(error.get())
            .is_ok_and(|error| error.code == METHOD_NOT_FOUND),
        _ => status == StatusCode::METHOD_NOT_ALLOWED,
    }
}

struct ListenBody {
    inner: Option<McpBody>,
    acknowledged: bool,
    subscription: Arc<Subscription>,
    ours: Pin<Box<dyn Stream<Item = Vec<u8>> + Send>>,
    keep_alive: Duration,
    quiet: Pin<Box<Sleep>>,
}

impl ListenBody {
    fn own_acknowledgement(&mut self) -> Bytes {
        self.acknowledged = true;
        sse::event(self.subscription.acknowledgement(None))
    }

    /// Adds ours to the inner server's acknowledgement. It writes one whole event a frame.
    fn acknowledge(&mut self, data: Bytes) -> Bytes {
        let subscription = &self.subscription;
        let mut found = false;
        let patched = patching::events(&data, &mut |message| {
            let Ok(Message::Notification {
                method,
                params: Some(params),
            }) = Message::parse(message)
            else {
                return None;
            };
            found = method == g2::ACKNOWLEDGED;
            found.then(|| subscription.acknowledgement(Some(params)))
        });
        self.acknowledged = found;
        patched.map_or(data, Bytes::from)
    }
}

impl Body for ListenBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let frame = |bytes: Bytes| Poll::Ready(Some(Ok(Frame::data(bytes))));
        if let Some(inner) = &mut this.inner
            && let Poll::Ready(next) = Pin::new(inner).poll_frame(cx)
        {
            return match next {
                Some(Ok(next)) => match next.into_data() {
                    Ok(data) if !this.acknowledged => frame(this.acknowledge(data)),
                    Ok(data) => frame(data),
                    Err(trailers) => Poll::Ready(Some(Ok(trailers))),
                },
                end => Poll::Ready(end),
            };
        }
        if !this.acknowledged {
            return match &this.inner {
                None => frame(this.own_acknowledgement()),
                // Nothing goes before the acknowledgement.
                Some(_) => Poll::Pending,
            };
        }
        match this.ours.as_mut().poll_next(cx) {
            Poll::Ready(Some(message)) => return frame(sse::event(message)),
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Pending => {}
        }
        // The inner server's stream has comments of its own.
        if this.inner.is_none() && this.quiet.as_mut().poll(cx).is_ready() {
            let next = tokio::time::Instant::now() + this.keep_alive;
            this.quiet.as_mut().reset(next);
            cx.waker().wake_by_ref();
            return frame(Bytes::from_static(b": keep-alive\n\n"));
        }
        Poll::Pending
    }
}
