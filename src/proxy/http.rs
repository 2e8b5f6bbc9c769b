//! The status of an answer to a request, and nothing else of it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

/// `HTTP/1.1 200` and as much as an answer has before the rest of its first line.
const STATUS_LINE: usize = 12;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It was answered with this status.
    Status(u16),
    /// Nobody listens there.
    Refused,
    /// No answer came, or none that is HTTP.
    Silent,
}

/// The answer to `GET path` from a server on this host, within `patience`.
pub(super) async fn get(at: SocketAddr, path: &str, patience: Duration) -> Answer {
    match timeout(patience, ask(at, path)).await {
        Ok(Ok(Some(status))) => Answer::Status(status),
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => Answer::Refused,
        Ok(Ok(None) | Err(_)) | Err(_) => Answer::Silent,
    }
}

/// A server closes the connection after an answer to HTTP/1.0 (RFC 9112, section 9.3).
async fn ask(at: SocketAddr, path: &str) -> io::Result<Option<u16>> {
    let stream = TcpStream::connect(at).await?;
    let request = format!("GET {path} HTTP/1.0\r\n\r\n");
    stream.writable().await?;
    // It is shorter than any send buffer.
    stream.try_write(request.as_bytes())?;
    let mut answer = Vec::with_capacity(STATUS_LINE);
    let mut bytes = [0; STATUS_LINE];
    while answer.len() < STATUS_LINE {
        stream.readable().await?;
        match stream.try_read(&mut bytes) {
            Ok(0) => return Ok(None),
            Ok(count) => answer.extend(bytes.iter().take(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    let line = String::from_utf8_lossy(&answer);
    let status = line.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5));
    Ok(status.and_then(|status| status.parse().ok()))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    const PATIENCE: Duration = Duration::from_millis(200);

    /// What is made of a server that answers so.
    async fn answered(text: &'static str) -> Answer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 64];
            let count = stream.read(&mut request).unwrap();
            stream.write_all(text.as_bytes()).unwrap();
            String::from_utf8_lossy(&request[..count]).into_owned()
        });
        let answer = get(at, "/livez", PATIENCE).await;
        assert_eq!(server.join().unwrap(), "GET /livez HTTP/1.0\r\n\r\n");
        answer
    }

    #[tokio::test]
    async fn an_answer_is_its_status() {
        assert_eq!(answered("HTTP/1.0 200 OK\r\n\r\n{}").await, Answer::Status(200));
        assert_eq!(answered("HTTP/1.1 503 Service").await, Answer::Status(503));
        for other in ["HTTP/2 200 OK\r\n", "SSH-2.0-OpenSSH\r\n", "HTTP/1.1 abc", "HTTP"] {
            assert_eq!(answered(other).await, Answer::Silent, "{other}");
        }
    }

    #[tokio::test]
    async fn who_does_not_listen_is_told_from_who_does_not_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        assert_eq!(get(at, "/", PATIENCE).await, Answer::Silent);
        drop(listener);
        assert_eq!(get(at, "/", PATIENCE).await, Answer::Refused);
    }
}
