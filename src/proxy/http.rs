//! Responses to HTTP requests.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

/// `HTTP/1.1 200` and as much as an answer has before the rest of its first line.
const STATUS_LINE: usize = 12;

/// The longest answer of which the body is read.
const SHORT: usize = 1024;

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It was answered with this status.
    Status(u16),
    /// The connection was refused: no process listens there.
    Refused,
    /// No answer came, or none that is HTTP.
    Silent,
}

/// The status of the answer to `GET path` from a server on this host, within `patience`.
pub(super) async fn get(at: SocketAddr, path: &str, patience: Duration) -> Answer {
    match timeout(patience, ask(at, path, STATUS_LINE)).await {
        Ok(Ok(answer)) => status(&answer).map_or(Answer::Silent, Answer::Status),
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => Answer::Refused,
        Ok(Err(_)) | Err(_) => Answer::Silent,
    }
}

/// The body of the same answer, if its status is 200 and it is a short text.
pub(super) async fn get_text(at: SocketAddr, path: &str, patience: Duration) -> Option<String> {
    let answer = timeout(patience, ask(at, path, SHORT)).await.ok()?.ok()?;
    if answer.len() >= SHORT || status(&answer) != Some(200) {
        return None;
    }
    let text = String::from_utf8(answer).ok()?;
    text.split_once("\r\n\r\n").map(|(_, body)| body.trim().to_owned())
}

fn status(answer: &[u8]) -> Option<u16> {
    let line = String::from_utf8_lossy(answer.get(..STATUS_LINE)?);
    line.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()
}

/// An answer, until `enough` bytes of it or more are there. A server closes the connection after an answer to HTTP/1.0
/// (RFC 9112, section 9.3).
async fn ask(at: SocketAddr, path: &str, enough: usize) -> io::Result<Vec<u8>> {
    let stream = TcpStream::connect(at).await?;
    let request = format!("GET {path} HTTP/1.0\r\n\r\n");
    stream.writable().await?;
    // It is shorter than any send buffer.
    stream.try_write(request.as_bytes())?;
    let mut answer = Vec::new();
    let mut bytes = [0; 256];
    while answer.len() < enough {
        stream.readable().await?;
        match stream.try_read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => answer.extend(bytes.iter().take(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    const PATIENCE: Duration = Duration::from_millis(200);

    /// The result of `get` with a server that sends `text`.
    async fn answered<T>(text: &'static str, get: impl AsyncFn(SocketAddr) -> T) -> T {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 64];
            let count = stream.read(&mut request).unwrap();
            stream.write_all(text.as_bytes()).unwrap();
            String::from_utf8_lossy(&request[..count]).into_owned()
        });
        let answer = get(at).await;
        assert_eq!(server.join().unwrap(), "GET /livez HTTP/1.0\r\n\r\n");
        answer
    }

    #[tokio::test]
    async fn an_answer_is_its_status() {
        let answered =
            async |text| answered(text, async |at| get(at, "/livez", PATIENCE).await).await;
        assert_eq!(answered("HTTP/1.0 200 OK\r\n\r\n{}").await, Answer::Status(200));
        assert_eq!(answered("HTTP/1.1 503 Service").await, Answer::Status(503));
        for other in ["HTTP/2 200 OK\r\n", "SSH-2.0-OpenSSH\r\n", "HTTP/1.1 abc", "HTTP"] {
            assert_eq!(answered(other).await, Answer::Silent, "{other}");
        }
    }

    #[tokio::test]
    async fn a_text_is_what_follows_the_head_of_a_good_answer() {
        let answered =
            async |text| answered(text, async |at| get_text(at, "/livez", PATIENCE).await).await;
        let good = "HTTP/1.0 200 OK\r\nContent-Length: 8\r\n\r\nnftables";
        assert_eq!(answered(good).await.as_deref(), Some("nftables"));
        let long: &'static str = format!("HTTP/1.0 200 OK\r\n\r\n{}", "n".repeat(SHORT)).leak();
        for other in ["HTTP/1.0 404 Not Found\r\n\r\nnftables", "HTTP/1.0 200 OK\r\n", "", long] {
            assert_eq!(answered(other).await, None, "{other}");
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
