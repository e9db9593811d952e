use super::*;
use http::HeaderValue;
use std::time::UNIX_EPOCH;

fn read(status: u16, headers: &[(&'static str, &'static str)]) -> Completion {
    let map = headers.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
    Head::read(StatusCode::from_u16(status).unwrap(), &map.collect(), UNIX_EPOCH).completion
}

#[test]
fn a_refusal_for_too_many_calls_is_known_by_its_status() {
    let limited = |secs| Completion::rate_limited(Some(Duration::from_secs(secs)));
    assert_eq!(read(429, &[]), Completion::rate_limited(None));
    assert_eq!(read(429, &[("retry-after", "7")]), limited(7));
    assert_eq!(read(529, &[("retry-after", "7")]), limited(7));
    assert_eq!(read(503, &[("retry-after", "7")]), limited(7));
    assert_eq!(read(503, &[]), Outcome::ProviderFailure.into());
}

#[test]
fn a_refusal_without_retry_after_waits_for_what_is_used_up() {
    let headers = [
        ("x-ratelimit-remaining-tokens", "0"),
        ("x-ratelimit-reset-tokens", "1m30s"),
        ("x-ratelimit-reset-requests", "5m"),
    ];
    assert_eq!(read(429, &headers), Completion::rate_limited(Some(Duration::from_secs(90))));
}

#[test]
fn every_other_status_is_a_success_a_timeout_or_a_failure() {
    for (status, outcome) in [
        (200, Outcome::Success),
        (204, Outcome::Success),
        (304, Outcome::Success),
        (400, Outcome::ProviderFailure),
        (401, Outcome::ProviderFailure),
        (404, Outcome::ProviderFailure),
        (408, Outcome::ProviderTimeout),
        (500, Outcome::ProviderFailure),
        (504, Outcome::ProviderTimeout),
    ] {
        assert_eq!(read(status, &[]), outcome.into(), "{status}");
    }
}

#[test]
fn a_grpc_status_counts_more_than_the_http_status_that_carries_it() {
    let exhausted = [("grpc-status", "8"), ("grpc-retry-pushback-ms", "250")];
    assert_eq!(read(200, &exhausted), Completion::rate_limited(Some(Duration::from_millis(250))));
    assert_eq!(read(200, &[("grpc-status", "8"), ("grpc-retry-pushback-ms", "-1")]), Completion::rate_limited(None));
    assert_eq!(read(200, &[("grpc-status", "0")]), Outcome::Success.into());
    assert_eq!(read(200, &[("grpc-status", "4")]), Outcome::ProviderTimeout.into());
    assert_eq!(read(200, &[("grpc-status", "14")]), Outcome::ProviderFailure.into());
    assert_eq!(read(200, &[("grpc-status", "1")]), Outcome::LocalCancelled.into());
    assert_eq!(read(200, &[("grpc-status", "eight")]), Outcome::Success.into());
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

    /// Frames that are there already.
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

    /// The pause in milliseconds that a gRPC answer with these trailers leaves behind.
    async fn pause_after(frames: Vec<Frame<&'static [u8]>>) -> Option<u64> {
        let gate = RequestGate::new().unwrap();
        let key = ResourceKey::chat("p", "m");
        gate.register(&key, &Limits::at_most(1)).unwrap();
        let mut held = Held::new(gate.acquire(&Call::of(key.clone())).await.unwrap());
        held.read(&Head::read(StatusCode::OK, &HeaderMap::new(), UNIX_EPOCH));
        let body = HeldBody::new(Frames(frames.into()), held);
        assert_eq!(gate.snapshot(&key).unwrap().in_flight, 1);
        body.collect().await.unwrap();
        let state = gate.snapshot(&key).unwrap();
        assert_eq!(state.in_flight, 0);
        state.blocked_until.map(|until| until.saturating_duration_since(state.at).as_nanos() / 1_000_000)
    }

    #[tokio::test(start_paused = true)]
    async fn the_trailers_of_a_grpc_answer_decide_how_its_call_ended() {
        let data = || Frame::data(&b"message"[..]);
        assert_eq!(pause_after(vec![data(), trailers(&[("grpc-status", "0")])]).await, None);
        let exhausted = trailers(&[("grpc-status", "8"), ("grpc-retry-pushback-ms", "750")]);
        assert_eq!(pause_after(vec![data(), exhausted]).await, Some(750));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_without_a_body_gives_its_slot_back_at_once() {
        let gate = RequestGate::new().unwrap();
        let key = ResourceKey::chat("p", "m");
        gate.register(&key, &Limits::at_most(1)).unwrap();
        let held = Held::new(gate.acquire(&Call::of(key.clone())).await.unwrap());
        let _body = HeldBody::new(http_body_util::Empty::<&[u8]>::new(), held);
        assert_eq!(gate.snapshot(&key).unwrap().in_flight, 0);
    }
}
