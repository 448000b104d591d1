// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The port, as clients meet it: good ones and others.

mod orders;
mod streams;
pub(crate) mod tls;

use std::io;
use std::io::Read;
use std::io::Write;
use std::net::SocketAddr;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;
use std::time::Instant;

use control::admin::Events;
use control::admin::Reply;
use control::admin::Request;
use target::Target;

use crate::Access;
use crate::Desk;
use crate::Giver;
use crate::Http;
use crate::Listener;
use crate::Tokens;
use crate::access::Gate;
use crate::connections::Limits;
use crate::looks::Looks;

const IQN: &str = "iqn.2026-01.com.example:http";

/// Longer than anything here may take.
const LONG: Duration = Duration::from_secs(20);

const LIMITS: Limits = Limits {
    connections: 8,
    head: Duration::from_millis(1200),
    silence: Duration::from_millis(1500),
};

/// One that serves a disk in memory.
pub(crate) fn target() -> Target {
    let mut stores = target::Stores::new();
    let store = stores.open(&"memory:16M".parse().unwrap()).unwrap();
    let identity = target::Identity::derive(IQN, 0, "EXAMPLE", "DISK");
    let unit = target::LogicalUnit::new(identity, store, 512).unwrap();
    let node = target::Node::new(IQN.to_owned(), vec![(0, Arc::new(unit))]);
    let listen: SocketAddr = "127.0.0.1:0".parse().unwrap();
    Target::start(target::Plan::new(vec![listen.into()], vec![node], stores)).unwrap()
}

/// Counts what it is asked, and takes its time.
#[derive(Debug, Default)]
pub(crate) struct Clerk {
    asked: Mutex<Vec<Request>>,
    givers: Mutex<Vec<Giver>>,
    takes: Duration,
    /// Says so much.
    says: usize,
}

impl Desk for Clerk {
    fn answer(&self, request: &Request) -> Reply {
        let mut asked = self.asked.lock().unwrap();
        asked.push(request.clone());
        let number = asked.len();
        drop(asked);
        std::thread::sleep(self.takes);
        match request {
            Request::Sessions => {
                Reply::Sessions { sessions: Vec::new(), silent_reactors: vec![number] }
            }
            Request::Events { .. } => {
                Reply::Events(Events { since_ms: 17, last: 3, ..Events::default() })
            }
            Request::Dump => unreachable!("it may say what is nobody's business"),
            Request::Status => Reply::Dumped { text: "a".repeat(self.says), warnings: Vec::new() },
            Request::Reload { dry_run: true, destroy_data: false } => {
                Reply::Error { message: "there is no \"file\"".into() }
            }
            _ => Reply::Done,
        }
    }

    fn order(&self, order: &Request, giver: &Giver) -> Reply {
        self.givers.lock().unwrap().push(giver.clone());
        self.answer(order)
    }
}

fn port() -> Http {
    port_with(None)
}

fn port_with(tokens: Option<Tokens>) -> Http {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let access = Access { tokens, tls: None };
    let gate = Gate::of(access, listener.address()).unwrap();
    Http::within(LIMITS, listener, Looks::new("1.2.3", gate)).unwrap()
}

fn connect(http: &Http) -> TcpStream {
    let stream = TcpStream::connect(http.address()).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

/// All that comes after these bytes, until the end. A reset is an end, too.
fn said_to(http: &Http, bytes: &[u8]) -> String {
    let mut stream = connect(http);
    stream.write_all(bytes).unwrap();
    rest(&mut stream)
}

fn rest(stream: &mut TcpStream) -> String {
    let mut said = Vec::new();
    match stream.read_to_end(&mut said) {
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset => panic!("{error}"),
        _ => String::from_utf8(said).unwrap(),
    }
}

/// Status and body of the answer to a GET.
fn get(http: &Http, path: &str) -> (u16, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let said = said_to(http, request.as_bytes());
    let (head, body) = said.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{path}: {said:?}"));
    (status(head), body.to_owned())
}

fn status(said: &str) -> u16 {
    let word = said.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1));
    word.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no status: {said:?}"))
}

#[test]
fn probes_hear_how_far_the_daemon_is() {
    let http = port();
    assert_eq!(get(&http, "/healthz"), (200, "ok\n".into()));
    assert_eq!(get(&http, "/readyz"), (503, "disks are being opened\n".into()));
    assert!(get(&http, "/metrics").1.contains("\nlunwire_ready 0\n"));
    let target = Arc::new(target());
    http.serves(Arc::clone(&target), Arc::new(Clerk::default()));
    assert_eq!(get(&http, "/healthz"), (200, "ok\n".into()));
    assert_eq!(get(&http, "/readyz"), (200, "ok\n".into()));
    let (status, page) = get(&http, "/metrics?of=all");
    assert_eq!(status, 200);
    assert!(page.ends_with("# EOF\n"), "{page}");
    assert!(page.contains("\nlunwire_ready 1\n"), "{page}");
    assert!(
        page.contains(&format!(
            "\nlunwire_lun_size_bytes{{target=\"{IQN}\",lun=\"0\"}} 16777216\n"
        ))
    );
    http.stops();
    assert_eq!(get(&http, "/healthz"), (200, "ok\n".into()));
    assert_eq!(get(&http, "/readyz"), (503, "the daemon stops\n".into()));
    target.stop(Duration::ZERO).unwrap();
}

#[test]
fn paths_and_methods_that_there_are_not_are_refused() {
    let http = port();
    for path in ["/metrics/", "/healthz/x", "/%6detrics", "//metrics", "*"] {
        assert_eq!(get(&http, path).0, 404, "{path}");
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get", "ANY"] {
        let request = format!(
            "{method} /metrics HTTP/1.1\r\nHost: [::1]:9260\r\nContent-Length: 5\r\n\
             Connection: close\r\n\r\n12345"
        );
        let said = said_to(&http, request.as_bytes());
        // CONNECT names no path.
        let wanted = if method == "CONNECT" { vec![400, 404, 405] } else { vec![405] };
        assert!(wanted.contains(&status(&said)), "{method}: {said}");
        assert!(method == "CONNECT" || said.to_lowercase().contains("\r\nallow: get, head\r\n"));
    }
    let said =
        said_to(&http, b"HEAD /metrics HTTP/1.1\r\nHost: [::1]:9260\r\nConnection: close\r\n\r\n");
    assert_eq!(status(&said), 200);
    let (head, body) = said.split_once("\r\n\r\n").unwrap();
    assert!(body.is_empty() && !head.contains("content-length: 0"), "{said}");
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
}

/// A page in a browser can be made to have a name that leads here.
#[test]
fn other_names_than_ours_are_refused() {
    let http = port();
    let asked_as = |host: &str| {
        let request = format!("GET /healthz HTTP/1.1\r\n{host}Connection: close\r\n\r\n");
        status(&said_to(&http, request.as_bytes()))
    };
    for good in ["127.0.0.1", "127.0.0.1:9260", "[::1]:9260", "localhost:80", "LocalHost"] {
        assert_eq!(asked_as(&format!("Host: {good}\r\n")), 200, "{good}");
    }
    for bad in ["example.com", "localhost.example.com:9260", "127.0.0.1.example.com", "", "a b"] {
        assert_eq!(asked_as(&format!("Host: {bad}\r\n")), 421, "{bad}");
    }
    for bad in ["192.0.2.1:9260", "[2001:db8::1]", "0.0.0.0", "10.0.0.1"] {
        assert_eq!(asked_as(&format!("Host: {bad}\r\n")), 421, "{bad}: another machine");
    }
    for good in ["127.9.9.9:1", "[::ffff:127.0.0.1]:80"] {
        assert_eq!(asked_as(&format!("Host: {good}\r\n")), 200, "{good}");
    }
    let both = "Host: localhost\r\nHost: example.com\r\n";
    assert!([400, 421].contains(&asked_as(both)), "one of two");
    assert_eq!(asked_as(""), 200, "who names nobody is no browser");
}

#[test]
fn what_the_control_socket_says_is_told() {
    let http = port();
    let (status, said) = get(&http, "/api/v1/status");
    let opening = "{\"reply\":\"error\",\"message\":\"disks are being opened\"}\n";
    assert_eq!((status, &*said), (503, opening));
    let (target, clerk) = (Arc::new(target()), Arc::new(Clerk::default()));
    http.serves(Arc::clone(&target), Arc::clone(&clerk) as Arc<dyn Desk>);
    let sessions = "{\"reply\":\"sessions\",\"sessions\":[],\"silent_reactors\":[1]}\n";
    assert_eq!(get(&http, "/api/v1/sessions"), (200, sessions.into()));
    for (path, request) in [("load", Request::Load), ("port-groups", Request::PortGroups)] {
        let done = (200, "{\"reply\":\"done\"}\n".to_owned());
        assert_eq!(get(&http, &format!("/api/v1/{path}")), done, "{path}");
        assert_eq!(clerk.asked.lock().unwrap().last(), Some(&request));
    }
    let error = "{\"reply\":\"error\",\"message\":\"there is no \\\"file\\\"\"}\n";
    assert_eq!(get(&http, "/api/v1/difference"), (409, error.into()));
    http.stops();
    let stopping = "{\"reply\":\"error\",\"message\":\"the daemon stops\"}\n";
    assert_eq!(get(&http, "/api/v1/sessions"), (503, stopping.into()));
    assert_eq!(Arc::strong_count(&clerk), 1, "it is let go");
    target.stop(Duration::ZERO).unwrap();
}

#[test]
fn an_answer_comes_as_json_and_for_this_site_alone() {
    let http = port();
    let asked = |method: &str, path: &str, of: &str| {
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: [::1]\r\n{of}Connection: close\r\n\r\n");
        said_to(&http, request.as_bytes())
    };
    for path in ["/api/v1/openapi.json", "/api/v1/status"] {
        let said = asked("GET", path, "Origin: http://example.com\r\n").to_lowercase();
        for line in [
            "content-type: application/json",
            "cache-control: no-store",
            "x-content-type-options: nosniff",
            "cross-origin-resource-policy: same-origin",
            "referrer-policy: no-referrer",
        ] {
            assert!(said.contains(&format!("\r\n{line}\r\n")), "{line}: {said}");
        }
        assert!(!said.contains("access-control"), "{said}");
        for (site, wanted) in [("same-origin", true), ("none", true), ("same-site", false)] {
            let said = asked("GET", path, &format!("Sec-Fetch-Site: {site}\r\n"));
            assert_eq!(status(&said) != 403, wanted, "{site}: {said}");
        }
        let said = asked("GET", path, "Sec-Fetch-Site: cross-site\r\n");
        assert_eq!(status(&said), 403, "{said}");
        for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
            assert_eq!(status(&asked(method, path, "")), 405, "{method} {path}");
        }
    }
    for path in ["/api", "/api/", "/api/v1/", "/api/v1/dump", "/api/v2/status", "/api/v1/Status"] {
        assert_eq!(get(&http, path).0, 404, "{path}");
    }
}

#[test]
fn the_page_comes_with_what_a_browser_may_do() {
    let http = port();
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/page.js", "text/javascript; charset=utf-8"),
        ("/page.css", "text/css; charset=utf-8"),
        ("/icon.svg", "image/svg+xml"),
    ] {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: [::1]:9260\r\nConnection: close\r\n\r\n");
        let said = said_to(&http, request.as_bytes());
        let (head, body) = said.split_once("\r\n\r\n").unwrap();
        assert_eq!(status(&said), 200, "{path}: {head}");
        assert!(body.contains("SPDX") || path == "/icon.svg", "{path}");
        for line in [
            format!("content-type: {kind}"),
            format!("content-security-policy: {}", crate::page::POLICY),
            "x-content-type-options: nosniff".into(),
            "x-frame-options: DENY".into(),
            "referrer-policy: no-referrer".into(),
        ] {
            assert!(head.lines().any(|one| one == line), "{path}: {line}: {head}");
        }
    }
    for path in ["/index.html", "/page.rs", "/page/page.js", "/../page.js", "/favicon.ico"] {
        assert_eq!(get(&http, path).0, 404, "{path}");
    }
}

/// However many ask, and however long an answer takes.
#[test]
fn a_question_is_asked_once_for_all_who_ask_it() {
    let http = port();
    let takes = Duration::from_secs(1);
    let clerk = Arc::new(Clerk { takes, ..Clerk::default() });
    let target = Arc::new(target());
    http.serves(Arc::clone(&target), Arc::clone(&clerk) as Arc<dyn Desk>);
    let (http, begun) = (&http, Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..LIMITS.connections - 1 {
            scope.spawn(|| assert_eq!(get(http, "/api/v1/sessions").0, 200));
        }
        assert_eq!(get(http, "/healthz").0, 200);
        assert!(begun.elapsed() < takes, "who waits for an answer keeps up nobody else");
    });
    let asked = clerk.asked.lock().unwrap().len();
    assert!((1..=2).contains(&asked), "{asked}: those who came meanwhile may want a newer one");
    // Who goes leaves the question behind: nobody asks it beside that.
    for _ in 0..20 {
        let mut gone = connect(http);
        gone.write_all(b"GET /api/v1/difference HTTP/1.1\r\nHost: [::1]\r\n\r\n").unwrap();
    }
    assert_eq!(get(http, "/api/v1/difference").0, 409);
    assert_eq!(get(http, "/healthz").0, 200);
    let asked = clerk.asked.lock().unwrap().len() - asked;
    assert!((1..=2).contains(&asked), "{asked}");
    target.stop(Duration::ZERO).unwrap();
}

/// Nobody has reactors asked more often than others do by a word that means nothing there.
#[test]
fn what_means_nothing_behind_a_path_is_refused() {
    let http = port();
    let clerk = Arc::new(Clerk::default());
    let target = Arc::new(target());
    http.serves(Arc::clone(&target), Arc::clone(&clerk) as Arc<dyn Desk>);
    let paths = ["status", "sessions", "load", "layers", "port-groups", "difference"];
    let others = ["openapi.json", "orders"];
    let after = "after=N is right here, with the number of an event";
    let only = "only=events is right here";
    let nothing = "nothing is right here behind a ?";
    let mut wrong: Vec<(String, &str)> = Vec::new();
    for path in paths.iter().chain(&others) {
        for query in ["after=1", "only=events", "&", "x"] {
            wrong.push((format!("{path}?{query}"), nothing));
        }
    }
    for query in ["only=bogus", "after=x", "after", "after=", "after=-1", "after=1&after=2", "b=1&"]
    {
        wrong.push((format!("events?{query}"), after));
    }
    for query in ["only=bogus", "only=", "only", "after=1", "only=events&only=events", "x"] {
        wrong.push((format!("stream?{query}"), only));
    }
    for (path, right) in wrong {
        let (status, said) = get(&http, &format!("/api/v1/{path}"));
        assert_eq!(status, 400, "{path}: {said}");
        assert!(said.contains(right) && said.starts_with("{\"reply\":\"error\""), "{path}: {said}");
    }
    assert!(clerk.asked.lock().unwrap().is_empty(), "nobody was asked");
    for path in paths.iter().filter(|path| **path != "difference") {
        assert_eq!(get(&http, &format!("/api/v1/{path}?")).0, 200, "{path}");
    }
    assert_eq!(get(&http, "/api/v1/events?after=7").0, 200);
    target.stop(Duration::ZERO).unwrap();
}

#[test]
fn a_long_answer_is_told_for_longer() {
    let target = Arc::new(target());
    let told = |says: usize| {
        let (http, clerk) = (port(), Arc::new(Clerk { says, ..Clerk::default() }));
        http.serves(Arc::clone(&target), Arc::clone(&clerk) as Arc<dyn Desk>);
        let (status, said) = get(&http, "/api/v1/status");
        std::thread::sleep(2 * crate::limits::FRESH);
        get(&http, "/api/v1/status");
        let asked = clerk.asked.lock().unwrap().len();
        (status, said.len() > says, asked)
    };
    assert_eq!(told(0), (200, true, 2));
    assert_eq!(told(2 << 20), (200, true, 1));
    target.stop(Duration::ZERO).unwrap();
}

#[test]
fn the_older_format_is_for_who_knows_no_other() {
    let http = port();
    let page = |accept: &str| {
        let request = format!(
            "GET /metrics HTTP/1.1\r\nHost: [::1]:9260\r\nAccept: {accept}\r\n\
             Connection: close\r\n\r\n"
        );
        said_to(&http, request.as_bytes())
    };
    let old = page("text/plain;version=0.0.4;q=0.5");
    assert!(old.contains("content-type: text/plain; version=0.0.4") && !old.contains("# EOF"));
    let both = "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5";
    for accept in [
        "text/plain, application/openmetrics-text;q=0",
        "application/openmetrics-text;q=0.0, */*",
        "text/*, application/*;q=0.2",
        "TEXT/PLAIN;q=0.9, application/openmetrics-text;version=1.0.0; Q=0.1",
    ] {
        assert!(page(accept).contains("content-type: text/plain; version=0.0.4"), "{accept}");
    }
    let no_text = "application/openmetrics-text, text/plain;q=0";
    let odd = "application/openmetrics-text;q=nan, text/plain;q=0.000";
    for accept in [both, "*/*", "text/html", no_text, odd, "text/plain;q=0", ",;=,"] {
        let new = page(accept);
        assert!(new.contains("openmetrics-text; version=1.0.0"), "{accept}: {new}");
        assert!(new.ends_with("# EOF\n"), "{accept}: {new}");
    }
}

#[test]
fn heads_that_are_slow_huge_or_none_end_their_connection_alone() {
    let http = port();
    let begun = Instant::now();
    let mut slow = connect(&http);
    slow.write_all(b"GET /metrics HTTP/1.1\r\nHo").unwrap();
    let mut dribbling = connect(&http);
    let mut silent = connect(&http);
    for byte in b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nA: " {
        std::thread::sleep(Duration::from_millis(20));
        // It may have been closed by now.
        let _ = dribbling.write_all(&[*byte]);
    }
    assert_eq!(get(&http, "/healthz").0, 200, "others are served meanwhile");
    for (stream, what) in
        [(&mut slow, "slow"), (&mut dribbling, "dribbling"), (&mut silent, "silent")]
    {
        let said = rest(stream);
        assert!(!said.contains(" 200 "), "{what}: {said}");
    }
    assert!(begun.elapsed() < LONG / 2, "{:?}", begun.elapsed());
    let huge =
        format!("GET /metrics HTTP/1.1\r\nHost: [::1]:9260\r\nA: {}\r\n\r\n", "a".repeat(1 << 20));
    let mut stream = connect(&http);
    // It is closed before all is read.
    let _ = stream.write_all(huge.as_bytes());
    let said = rest(&mut stream);
    assert!(said.is_empty() || status(&said) == 431, "{said}");
    let lines: String = (0..200).map(|number| format!("A{number}: b\r\n")).collect();
    let said = said_to(&http, format!("GET /metrics HTTP/1.1\r\n{lines}\r\n").as_bytes());
    assert_eq!(status(&said), 431, "{said}");
    for garbage in ["\0\u{1}\u{2}\r\n\r\n", "GET\r\n\r\n", "GET /metrics HTTP/9.9\r\n\r\n"] {
        assert_eq!(status(&said_to(&http, garbage.as_bytes())), 400, "{garbage:?}");
    }
    assert_eq!(get(&http, "/healthz").0, 200);
}

#[test]
fn requests_behind_each_other_are_answered_in_order() {
    let http = port();
    let one = "GET /healthz HTTP/1.1\r\nHost: [::1]:9260\r\n\r\n";
    let last = "GET /nothing HTTP/1.1\r\nHost: [::1]:9260\r\nConnection: close\r\n\r\n";
    let said = said_to(&http, (one.repeat(100) + last).as_bytes());
    assert_eq!(said.matches("HTTP/1.1 200 OK").count(), 100);
    assert_eq!(said.matches("HTTP/1.1 404").count(), 1);
    assert!(said.find("404").unwrap() > said.rfind("200 OK").unwrap());
}

/// Its answers fill what the kernel keeps for it, then it asks no more, as it is not heard.
#[test]
fn who_never_reads_is_let_go() {
    let http = port();
    let target = Arc::new(target());
    http.serves(Arc::clone(&target), Arc::new(Clerk::default()));
    let mut deaf = connect(&http);
    deaf.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    let request = "GET /metrics HTTP/1.1\r\nHost: [::1]:9260\r\n\r\n".repeat(1000);
    let begun = Instant::now();
    let error = loop {
        match deaf.write(request.as_bytes()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                assert_eq!(get(&http, "/healthz").0, 200, "others are served meanwhile");
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break error,
            Ok(_) => {}
        }
        assert!(begun.elapsed() < LONG, "it is heard for ever");
    };
    let ends = [io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];
    assert!(ends.contains(&error.kind()), "{error}");
    target.stop(Duration::ZERO).unwrap();
}

#[test]
fn who_holds_all_connections_keeps_nobody_out() {
    let http = port();
    let mut held: Vec<TcpStream> = (0..3 * LIMITS.connections).map(|_| connect(&http)).collect();
    assert_eq!(get(&http, "/healthz").0, 200);
    // The oldest have gone, before a limit of time ends all.
    let begun = Instant::now();
    assert_eq!(rest(&mut held[0]), "");
    assert!(begun.elapsed() < LIMITS.head, "{:?}", begun.elapsed());
}

#[test]
fn those_who_come_at_once_are_all_told() {
    let http = port();
    let target = Arc::new(target());
    http.serves(Arc::clone(&target), Arc::new(Clerk::default()));
    let http = &http;
    std::thread::scope(|scope| {
        let scrapes: Vec<_> = (0..LIMITS.connections - 1)
            .map(|_| scope.spawn(|| (0..50).map(|_| get(http, "/metrics")).collect::<Vec<_>>()))
            .collect();
        for (status, page) in scrapes.into_iter().flat_map(|scrape| scrape.join().unwrap()) {
            assert!(status == 200 && page.ends_with("# EOF\n"));
        }
    });
    target.stop(Duration::ZERO).unwrap();
}

#[test]
fn the_port_is_free_when_it_is_closed() {
    let http = port();
    let address = http.address();
    let mut open = connect(&http);
    drop(http);
    assert_eq!(rest(&mut open), "", "connections end with it");
    Listener::bind(address).unwrap();
}
