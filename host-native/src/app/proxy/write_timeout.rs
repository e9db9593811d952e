//! A write timeout for connections. A client that stops reading would otherwise keep its provider slot
//! indefinitely.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

use super::head_scanner::HeadScanner;

/// TCP keepalive: the idle time before the first probe, the interval between probes, and the number of
/// unanswered probes.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(10), 3);

/// How long sent data may stay unacknowledged. Keepalive probes are sent on idle connections only, and a
/// connection with data in flight is not idle.
#[cfg(target_os = "linux")]
const UNACKED_TIMEOUT: Duration = Duration::from_mins(1);

/// Configures the socket to detect peers that disappeared without closing the connection.
pub(super) fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    let (time, interval, retries) = KEEPALIVE;
    let probes = TcpKeepalive::new().with_time(time).with_interval(interval);
    #[cfg(unix)]
    let probes = probes.with_retries(retries);
    let socket = SockRef::from(stream);
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNACKED_TIMEOUT))?;
    socket.set_tcp_keepalive(&probes)
}

pin_project! {
    /// A connection that fails with [`io::ErrorKind::TimedOut`] if no write makes progress for too long.
    #[derive(Debug)]
    pub(super) struct WriteTimeout<T> {
        #[pin]
        io: T,
        timeout: Duration,
        #[pin]
        deadline: Sleep,
        is_stalled: bool,
        has_unanswered_bytes: bool,
        heads: Arc<HeadScanner>,
    }
}

impl<T> WriteTimeout<T> {
    /// Wraps `io`. A write fails if it makes no progress for `timeout`. `heads` scans all bytes read.
    pub(super) fn new(io: T, timeout: Duration, heads: Arc<HeadScanner>) -> Self {
        Self { io, timeout, deadline: sleep(timeout), is_stalled: false, has_unanswered_bytes: false, heads }
    }

    /// Returns whether bytes were read after the last write. They may be part of a request.
    pub(super) fn has_unanswered_bytes(&self) -> bool {
        self.has_unanswered_bytes
    }

    /// Returns the result of a write, or an error if there was no progress for too long.
    fn check_write<R>(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        wrote: Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        let mut this = self.project();
        if wrote.is_ready() {
            (*this.is_stalled, *this.has_unanswered_bytes) = (false, false);
            return wrote;
        }
        if !*this.is_stalled {
            *this.is_stalled = true;
            this.deadline.as_mut().reset(Instant::now() + *this.timeout);
        }
        ready!(this.deadline.poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<T: AsyncRead> AsyncRead for WriteTimeout<T> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.project();
        let before = buffer.filled().len();
        let read = this.io.poll_read(context, buffer);
        let received = &buffer.filled()[before..];
        *this.has_unanswered_bytes |= !received.is_empty();
        this.heads.received(received);
        read
    }
}

impl<T: AsyncWrite> AsyncWrite for WriteTimeout<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = self.as_mut().project().io.poll_write(context, bytes);
        self.check_write(context, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = self.as_mut().project().io.poll_write_vectored(context, pieces);
        self.check_write(context, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.as_mut().project().io.poll_flush(context);
        let has_unanswered_bytes = self.has_unanswered_bytes;
        let flushed = self.as_mut().check_write(context, flushed);
        // A flush is not a response.
        *self.project().has_unanswered_bytes = has_unanswered_bytes;
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().io.poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    const TIMEOUT: Duration = Duration::from_mins(2);

    #[tokio::test(start_paused = true)]
    async fn a_client_that_stops_reading_times_out_and_a_slow_client_does_not() {
        let (near, mut far) = tokio::io::duplex(8);
        let mut near = Box::pin(WriteTimeout::new(near, TIMEOUT, Arc::default()));
        let reader = tokio::spawn(async move {
            let mut piece = [0; 8];
            for _ in 0..3 {
                sleep(TIMEOUT * 9 / 10).await;
                far.read_exact(&mut piece).await.unwrap();
            }
            far
        });
        near.write_all(&[1; 32]).await.unwrap();
        let _far = reader.await.unwrap();
        let since = Instant::now();
        let error = near.write_all(&[2; 32]).await.unwrap_err();
        assert_eq!((error.kind(), since.elapsed()), (io::ErrorKind::TimedOut, TIMEOUT));
    }

    #[tokio::test]
    async fn a_socket_accepts_the_keepalive_settings() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        keep_alive(&stream).unwrap();
        #[cfg(target_os = "linux")]
        assert_eq!(SockRef::from(&stream).tcp_user_timeout().unwrap(), Some(UNACKED_TIMEOUT));
    }
}
