//! A server for tests that sends prepared responses.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use varve_client::{Access, Client, ClientOptions, Remedies, Url};

/// A response, and what the server does before it sends the response.
pub(super) struct Answer {
    pub(super) status: &'static str,
    pub(super) body: &'static str,
    pub(super) action: Box<dyn FnOnce() + Send>,
}

impl Answer {
    pub(super) fn new(status: &'static str, body: &'static str) -> Self {
        Self {
            status,
            body,
            action: Box::new(|| ()),
        }
    }
}

/// Returns the client of a server that sends these responses, one per request. It reads requests of
/// up to 4 KiB.
pub(super) fn serve(answers: Vec<Answer>) -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for Answer {
            status,
            body,
            action,
        } in answers
        {
            let mut connection = listener.accept().unwrap().0;
            let _request_size = connection.read(&mut [0; 4096]).unwrap();
            action();
            let size = body.len();
            let answer = format!(
                "HTTP/1.1 {status}\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: {size}\r\n\r\n{body}"
            );
            connection.write_all(answer.as_bytes()).unwrap();
        }
    });
    let options = ClientOptions {
        timeout: Duration::from_secs(60),
        response_size_max: 1 << 20,
        user_agent: "test",
        remedies: Remedies::default(),
    };
    Client::new(&Url::parse(&url).unwrap(), Access::default(), options).unwrap()
}
