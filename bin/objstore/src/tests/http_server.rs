//! A server on the loopback interface that hands each request to a function.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

/// A request.
pub(super) struct Received {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: String,
    /// By name in lower case.
    pub(super) headers: HashMap<String, String>,
    pub(super) body: Vec<u8>,
}

/// A response. Its length is added to the headers.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<String>,
    pub(super) body: Vec<u8>,
}

impl Answer {
    pub(super) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: body.into(),
        }
    }
}

/// Starts a server, and returns its host and port. Each connection has a thread.
pub(super) fn start<R>(respond: R) -> String
where
    R: Fn(&Received) -> Answer + Clone + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let respond = respond.clone();
            std::thread::spawn(move || serve(stream.unwrap(), respond));
        }
    });
    address
}

fn serve(stream: TcpStream, respond: impl Fn(&Received) -> Answer) {
    let mut reader = BufReader::new(stream);
    while let Some(request) = Received::read(&mut reader) {
        let answer = respond(&request);
        let mut head = format!(
            "HTTP/1.1 {} x\r\ncontent-length: {}\r\n",
            answer.status,
            answer.body.len()
        );
        for header in answer.headers {
            head.push_str(&format!("{header}\r\n"));
        }
        head.push_str("\r\n");
        reader
            .get_mut()
            .write_all(&[head.as_bytes(), &answer.body].concat())
            .unwrap();
    }
}

impl Received {
    fn read(reader: &mut BufReader<TcpStream>) -> Option<Self> {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let (method, target) = line.split_once(' ')?;
        let target = target.split(' ').next()?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let (method, path, query) = (method.to_owned(), path.to_owned(), query.to_owned());
        let mut headers = HashMap::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                break;
            };
            headers.insert(name.to_lowercase(), value.to_owned());
        }
        let size = headers
            .get("content-length")
            .map_or(0, |size| size.parse().unwrap());
        let mut body = vec![0; size];
        reader.read_exact(&mut body).ok()?;
        Some(Self {
            method,
            path,
            query,
            headers,
            body,
        })
    }

    /// Returns the parameters of the query, decoded.
    pub(super) fn params(&self) -> HashMap<String, String> {
        let fields = self
            .query
            .split('&')
            .filter_map(|field| field.split_once('='));
        fields
            .map(|(name, value)| (name.to_owned(), decode(value)))
            .collect()
    }

    /// Returns the range of an object that the request asks for, or `None` if it begins at the end or
    /// later.
    pub(super) fn range_of(&self, object: &[u8]) -> Option<Vec<u8>> {
        let range = self.headers["range"].strip_prefix("bytes=").unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let end: usize = end.parse().unwrap();
        let range = object.get(start.parse().unwrap()..object.len().min(end + 1))?;
        (!range.is_empty()).then(|| range.to_vec())
    }
}

/// Decodes a part of a URL.
pub(super) fn decode(text: &str) -> String {
    let decoded = percent_encoding::percent_decode_str(text).decode_utf8();
    decoded.unwrap().into_owned()
}
