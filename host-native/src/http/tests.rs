use super::*;
use http::HeaderValue;
use std::time::UNIX_EPOCH;
use tidegate_core::request::Outcome;

fn read(status: u16, headers: &[(&'static str, &'static str)]) -> Completion {
    let map = headers.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
    read_head(StatusCode::from_u16(status).unwrap(), &map.collect(), UNIX_EPOCH).completion
}

fn rate_limited_for(secs: u64) -> Completion {
    Completion::rate_limited(Some(Duration::from_secs(secs)))
}

#[test]
fn status_and_headers_decide_the_completion() {
    assert_eq!(read(200, &[]), Outcome::Success.into());
    assert_eq!(read(503, &[]), Outcome::ProviderFailure.into());
    assert_eq!(read(503, &[("retry-after", "7")]), rate_limited_for(7));
    let exhausted = [("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "1m30s")];
    assert_eq!(read(429, &exhausted), rate_limited_for(90));
    assert_eq!(read(200, &[("grpc-status", "4")]), Outcome::ProviderTimeout.into());
}

#[test]
fn a_retry_after_date_counts_from_the_given_time() {
    assert_eq!(read(429, &[("retry-after", "Thu, 01 Jan 1970 00:00:10 GMT")]), rate_limited_for(10));
    let late = UNIX_EPOCH + std::time::Duration::from_mins(1);
    let headers =
        HeaderMap::from_iter([(http::header::RETRY_AFTER, HeaderValue::from_static("Thu, 01 Jan 1970 00:00:10 GMT"))]);
    assert_eq!(read_head(StatusCode::TOO_MANY_REQUESTS, &headers, late).completion, rate_limited_for(0));
}

#[test]
fn a_header_that_is_not_text_counts_as_absent() {
    let name = http::HeaderName::from_static("x-ratelimit-remaining-tokens");
    let headers = HeaderMap::from_iter([(name, HeaderValue::from_bytes(b"\xff1").unwrap())]);
    assert_eq!(read_head(StatusCode::OK, &headers, UNIX_EPOCH).corrections, []);
}

mod bodies {
    use super::*;
    use crate::gate::{Call, Limits, RequestGate, ResourceKey};
    use http::HeaderName;
    use http_body::{Body, Frame};
    use http_body_util::BodyExt;
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use tidegate_core::limit::LimitChoice;

    /// A body whose frames are all available.
    struct Frames(VecDeque<Frame<&'static [u8]>>);

    impl Body for Frames {
        type Data = &'static [u8];
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Self::Data>, Infallible>>> {
            Poll::Ready(self.0.pop_front().map(Ok))
        }
    }

    fn trailers(pairs: &[(&'static str, &'static str)]) -> Frame<&'static [u8]> {
        let pairs = pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        Frame::trailers(pairs.collect())
    }

    /// Returns the cooldown in milliseconds after a gRPC response with these frames.
    async fn cooldown_after(frames: Vec<Frame<&'static [u8]>>) -> Option<u64> {
        let gate = RequestGate::new().unwrap();
        let key = ResourceKey::chat("p", "m");
        gate.register(&key, &Limits::at_most(1).with_algorithm(LimitChoice::Aimd)).unwrap();
        let mut call = InFlightCall::new(gate.acquire(&Call::new(key.clone())).await.unwrap());
        call.record_response(StatusCode::OK, &HeaderMap::new(), UNIX_EPOCH);
        let body = PermitBody::new(Frames(frames.into()), call);
        assert_eq!(gate.snapshot(&key).unwrap().in_flight, 1);
        body.collect().await.unwrap();
        let state = gate.snapshot(&key).unwrap();
        assert_eq!(state.in_flight, 0);
        state.blocked_until.map(|until| until.saturating_duration_since(state.at).as_nanos() / 1_000_000)
    }

    #[tokio::test(start_paused = true)]
    async fn grpc_trailers_decide_how_the_call_ended() {
        let data = || Frame::data(&b"message"[..]);
        assert_eq!(cooldown_after(vec![data(), trailers(&[("grpc-status", "0")])]).await, None);
        let exhausted = trailers(&[("grpc-status", "8"), ("grpc-retry-pushback-ms", "750")]);
        assert_eq!(cooldown_after(vec![data(), exhausted]).await, Some(750));
    }

    #[tokio::test(start_paused = true)]
    async fn an_empty_body_releases_the_permit_at_once() {
        let gate = RequestGate::new().unwrap();
        let key = ResourceKey::chat("p", "m");
        gate.register(&key, &Limits::at_most(1)).unwrap();
        let call = InFlightCall::new(gate.acquire(&Call::new(key.clone())).await.unwrap());
        let _body = PermitBody::new(http_body_util::Empty::<&[u8]>::new(), call);
        assert_eq!(gate.snapshot(&key).unwrap().in_flight, 0);
    }
}
