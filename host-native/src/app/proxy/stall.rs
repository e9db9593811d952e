//! Clients that hold a connection open and take nothing from it: they would hold the provider's slot as long.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

/// How long a client may take nothing of what is there for it.
pub(super) const PATIENCE: Duration = Duration::from_mins(2);

/// How long a connection may be silent before the other side is asked whether it is still there, how often after that,
/// and how many questions may go unanswered.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(10), 3);

/// How long what was sent may stay without an answer of the other side's system: questions are asked of silent connections
/// only, and a stream is not silent.
#[cfg(target_os = "linux")]
const UNANSWERED: Duration = Duration::from_mins(1);

/// Makes the system find out that the machine on the other side is gone without a word.
pub(super) fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    let (time, interval, retries) = KEEPALIVE;
    let probes = TcpKeepalive::new().with_time(time).with_interval(interval);
    #[cfg(unix)]
    let probes = probes.with_retries(retries);
    let socket = SockRef::from(stream);
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNANSWERED))?;
    socket.set_tcp_keepalive(&probes)
}

pin_project! {
    /// A connection that breaks when nothing can be written to it for [`PATIENCE`].
    #[derive(Debug)]
    pub(super) struct Unstalled<T> {
        #[pin]
        io: T,
        #[pin]
        stalled: Sleep,
        is_stalled: bool,
    }
}

impl<T> Unstalled<T> {
    pub(super) fn new(io: T) -> Self {
        Self { io, stalled: sleep(PATIENCE), is_stalled: false }
    }

    /// The result of a write, or the error that there has been none for too long.
    fn watch<R>(self: Pin<&mut Self>, context: &mut Context<'_>, wrote: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        let mut this = self.project();
        if wrote.is_ready() {
            *this.is_stalled = false;
            return wrote;
        }
        if !*this.is_stalled {
            *this.is_stalled = true;
            this.stalled.as_mut().reset(Instant::now() + PATIENCE);
        }
        ready!(this.stalled.poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<T: AsyncRead> AsyncRead for Unstalled<T> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.project().io.poll_read(context, buffer)
    }
}

impl<T: AsyncWrite> AsyncWrite for Unstalled<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = self.as_mut().project().io.poll_write(context, bytes);
        self.watch(context, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = self.as_mut().project().io.poll_write_vectored(context, pieces);
        self.watch(context, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.as_mut().project().io.poll_flush(context);
        self.watch(context, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().io.poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_given_up_and_one_that_is_slow_is_not() {
        let (near, mut far) = tokio::io::duplex(8);
        let mut near = Box::pin(Unstalled::new(near));
        let reader = tokio::spawn(async move {
            let mut piece = [0; 8];
            for _ in 0..3 {
                sleep(PATIENCE * 9 / 10).await;
                far.read_exact(&mut piece).await.unwrap();
            }
            far
        });
        near.write_all(&[1; 32]).await.unwrap();
        let _far = reader.await.unwrap();
        let since = Instant::now();
        let error = near.write_all(&[2; 32]).await.unwrap_err();
        assert_eq!((error.kind(), since.elapsed()), (io::ErrorKind::TimedOut, PATIENCE));
    }

    #[tokio::test]
    async fn a_socket_takes_the_settings() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        keep_alive(&stream).unwrap();
        #[cfg(target_os = "linux")]
        assert_eq!(SockRef::from(&stream).tcp_user_timeout().unwrap(), Some(UNANSWERED));
    }
}
