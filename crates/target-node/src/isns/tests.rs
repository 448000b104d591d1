// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The client against a small name server on a real socket.

use std::net::TcpListener;
use std::net::UdpSocket;
use std::sync::Arc;

use wire::isns::Attributes;
use wire::isns::Flags;
use wire::isns::Function;
use wire::isns::HEADER_LEN;
use wire::isns::Header;
use wire::isns::Payload;
use wire::isns::Tag;

use super::*;
use crate::node::Portal;
use std::net::SocketAddr;

const PATIENCE: Duration = Duration::from_secs(20);

/// What a name server heard: function and names of nodes.
type Heard = (Function, Vec<String>);

/// Answers every request with success, and repeats its attributes.
fn serve(listener: TcpListener, heard: mpsc::Sender<Heard>) {
    serve_and_watch(listener, heard, mpsc::channel().0);
}

/// Tells besides at which UDP port the client may be asked whether it is there.
fn serve_and_watch(listener: TcpListener, heard: mpsc::Sender<Heard>, posts: mpsc::Sender<u16>) {
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            if answer_all(stream, &heard, &posts).is_none() {
                return;
            }
        }
    });
}

/// None: nobody listens any more.
fn answer_all(
    mut stream: TcpStream,
    heard: &mpsc::Sender<Heard>,
    posts: &mpsc::Sender<u16>,
) -> Option<()> {
    loop {
        let mut header = [0; HEADER_LEN];
        if stream.read_exact(&mut header).is_err() {
            return Some(());
        }
        let header = Header::parse(header).expect("a client speaks well");
        let mut payload = vec![0; usize::from(header.length)];
        stream.read_exact(&mut payload).expect("a whole request");
        let attributes = Attributes::new(&payload).map(Result::unwrap);
        for post in attributes.clone().filter(|one| one.tag == Tag::INQUIRY_PORT) {
            let port = post.number().and_then(|port| port.checked_sub(0x1_0000));
            // Nobody may want to know.
            let _ = posts.send(u16::try_from(port.expect("a port of UDP")).expect("a port"));
        }
        let nodes = attributes.skip(1).filter(|one| one.tag == Tag::NAME);
        let names = nodes.filter_map(|one| one.text()).map(str::to_owned).collect();
        heard.send((header.function, names)).ok()?;
        let answer = Header {
            function: header.function.response(),
            length: header.length + 4,
            flags: Flags::SERVER.with(Flags::FIRST).with(Flags::LAST),
            ..header
        };
        let bytes = [&answer.emit()[..], &[0; 4], &payload].concat();
        stream.write_all(&bytes).expect("the client reads");
    }
}

fn registration() -> Registration {
    let names = ["iqn.2026-01.com.example:a", "iqn.2026-01.com.example:b"];
    Registration {
        entity: names[0].to_owned(),
        targets: names.iter().map(|name| ((*name).to_owned(), None)).collect(),
        portals: vec![Portal::from("127.0.0.1:3260".parse::<SocketAddr>().unwrap())],
    }
}

/// Covers: DIS-21/T.
#[test]
fn a_daemon_registers_and_leaves() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap().to_string();
    let (send, heard) = mpsc::channel();
    serve(listener, send);
    let client = Client::start(server, registration()).unwrap();
    let (function, names) = heard.recv_timeout(PATIENCE).unwrap();
    assert_eq!(function, Function::REGISTER);
    assert_eq!(names, ["iqn.2026-01.com.example:a", "iqn.2026-01.com.example:b"]);
    client.leave().wait();
    assert_eq!(heard.recv_timeout(PATIENCE).unwrap().0, Function::DEREGISTER);
}

/// What is told later takes the place of what was told before; nothing at all, too.
#[test]
fn what_a_server_is_told_changes() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap().to_string();
    let (send, heard) = mpsc::channel();
    serve(listener, send);
    let hear = || heard.recv_timeout(PATIENCE).unwrap();
    let service = NameService::new(Some(server));
    let [first, second] = ["iqn.2026-01.com.example:a", "iqn.2026-01.com.example:b"];
    let only = |name: &str| Registration {
        entity: name.to_owned(),
        targets: vec![(name.to_owned(), None)],
        ..registration()
    };
    service.tell(Some(registration())).unwrap();
    assert_eq!(hear(), (Function::REGISTER, vec![first.to_owned(), second.to_owned()]));
    service.tell(Some(only(first))).unwrap();
    assert_eq!(hear(), (Function::REGISTER, vec![first.to_owned()]));
    service.tell(Some(only(second))).unwrap();
    assert_eq!(hear().0, Function::DEREGISTER);
    assert_eq!(hear(), (Function::REGISTER, vec![second.to_owned()]));
    service.tell(None).unwrap();
    assert_eq!(hear().0, Function::DEREGISTER);
    service.tell(Some(only(first))).unwrap();
    assert_eq!(hear(), (Function::REGISTER, vec![first.to_owned()]));
    service.leave().unwrap().wait();
    assert_eq!(hear().0, Function::DEREGISTER);
}

/// The server asks where the registration said, and is answered as long as the daemon runs.
#[test]
fn inquiries_are_answered() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap().to_string();
    let (send, heard) = mpsc::channel();
    let (tell, posts) = mpsc::channel();
    serve_and_watch(listener, send, tell);
    let client = Client::start(server, registration()).unwrap();
    assert_eq!(heard.recv_timeout(PATIENCE).unwrap().0, Function::REGISTER);
    let post = posts.recv_timeout(PATIENCE).unwrap();
    let mut payload = Payload::new();
    payload.push_text(Tag::ENTITY, "iqn.2026-01.com.example:a");
    let header = Header {
        function: Function::INQUIRY,
        length: u16::try_from(payload.as_bytes().len()).unwrap(),
        flags: Flags::SERVER.with(Flags::FIRST).with(Flags::LAST),
        transaction: 9,
        sequence: 0,
    };
    let inquiry = [&header.emit()[..], payload.as_bytes()].concat();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(("127.0.0.1", post)).unwrap();
    let ask = |patience| {
        socket.set_read_timeout(Some(patience)).unwrap();
        let mut bytes = [0; 2048];
        socket.send(b"no inquiry").and_then(|_| socket.send(&inquiry))?;
        socket.recv(&mut bytes).map(|length| bytes[..length].to_vec())
    };
    for _ in 0..3 {
        let bytes = ask(PATIENCE).unwrap();
        assert_eq!(bytes[..4], [0, 1, 0x80, 0x0d]);
        assert_eq!(bytes[HEADER_LEN + 4..], *payload.as_bytes());
    }
    client.leave().wait();
    assert_eq!(heard.recv_timeout(PATIENCE).unwrap().0, Function::DEREGISTER);
    let begun = std::time::Instant::now();
    while ask(Duration::from_millis(50)).is_ok() {
        assert!(begun.elapsed() < PATIENCE, "nobody answers any more");
    }
}

#[test]
fn a_server_that_comes_late_is_found() {
    // A port that was free a moment ago.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let client = Client::start(address.to_string(), registration()).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let (send, heard) = mpsc::channel();
    serve(TcpListener::bind(address).unwrap(), send);
    assert_eq!(heard.recv_timeout(PATIENCE).unwrap().0, Function::REGISTER);
    client.leave().wait();
    assert_eq!(heard.recv_timeout(PATIENCE).unwrap().0, Function::DEREGISTER);
}

#[test]
fn a_server_that_hangs_holds_up_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap().to_string();
    let begun = std::time::Instant::now();
    let client = Client::start(server, registration()).unwrap();
    let accepted = Arc::new(Mutex::new(listener.accept().unwrap()));
    client.leave().wait();
    assert!(begun.elapsed() < PATIENCE);
    drop(accepted);
}
