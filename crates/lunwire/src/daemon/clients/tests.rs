// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clients that wait, go away, or ask nothing.

use super::*;
use control::admin::NewLun;
use std::path::PathBuf;

/// Far less than any deadline.
const SOON: Duration = Duration::from_secs(3);

/// Answers each question with so many bytes.
struct Long(usize);

impl Questions for Long {
    fn answer(&self, request: &Request) -> Option<Reply> {
        let message = "x".repeat(self.0);
        (*request == Request::Status).then_some(Reply::Error { message })
    }
}

fn served(answer_len: usize) -> (Clients<Long>, Orders, PathBuf, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control");
    let listener = UnixListener::bind(&path).unwrap();
    let (clients, orders) = Clients::new(listener, Long(answer_len)).unwrap();
    (clients, orders, path, folder)
}

fn ask(path: &PathBuf, request: &Request) -> UnixStream {
    let mut stream = UnixStream::connect(path).unwrap();
    let mut line = serde_json::to_vec(request).unwrap();
    line.push(b'\n');
    stream.write_all(&line).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream
}

fn answer(mut stream: UnixStream) -> usize {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer.len()
}

#[test]
fn answers_that_nobody_takes_are_bounded_and_hold_nobody_up() {
    const LEN: usize = 8 << 20;
    let (mut clients, _orders, path, _folder) = served(LEN);
    let deaf: Vec<UnixStream> = (0..12).map(|_| ask(&path, &Request::Status)).collect();
    while clients.next < 12 {
        clients.turn();
    }
    let kept: usize = clients.clients.iter().map(Client::answer_len).sum();
    assert!((LEN..=ANSWERS_BYTES_MAX).contains(&kept), "{kept} bytes");
    std::thread::spawn(move || {
        loop {
            clients.turn();
        }
    });
    assert!(answer(ask(&path, &Request::Status)) > LEN);
    drop(deaf);
}

/// Whoever interrupts a command does not want it any more; what has begun goes on.
#[test]
fn an_order_whose_client_is_gone_before_its_turn_is_dropped() {
    let (mut clients, orders, path, _folder) = served(10);
    let (go, gate) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    let gate = Mutex::new(gate);
    let carrying = std::thread::spawn(move || {
        orders.run(|order, is_wanted| {
            let _ = tell.send((order.clone(), true));
            let _ = gate.lock().unwrap().recv();
            let _ = tell.send((order.clone(), is_wanted()));
            Reply::Done
        });
    });
    let resize = |bytes| Request::ResizeLun { target: None, lun: 0, bytes, shrink: false };
    let first = ask(&path, &resize(0));
    clients.turn();
    assert_eq!(told.recv_timeout(SOON), Ok((resize(0), true)));
    let interrupted = ask(&path, &resize(1));
    let patient = ask(&path, &resize(2));
    // It has said all, and waits for its answer.
    patient.shutdown(std::net::Shutdown::Write).unwrap();
    while clients.clients.len() < 3 {
        clients.turn();
    }
    drop((first, interrupted));
    drop(go);
    std::thread::spawn(move || {
        loop {
            clients.turn();
        }
    });
    assert!(answer(patient) > 0);
    let expected = [(resize(0), false), (resize(2), true), (resize(2), true)];
    assert_eq!(told.try_iter().collect::<Vec<_>>(), expected);
    drop(carrying);
}

/// Who is left without an answer does not know whether it was done.
#[test]
fn who_is_here_at_the_end_is_told_what_has_become_of_his_order() {
    let (mut clients, orders, path, _folder) = served(10);
    let stopper = clients.stopper(&orders).unwrap();
    let resize = Request::ResizeLun { target: None, lun: 0, bytes: 512, shrink: false };
    let waits = ask(&path, &resize);
    let mut late = UnixStream::connect(&path).unwrap();
    while clients.clients.len() < 2 {
        clients.turn();
    }
    // It has been accepted, and nobody has listened to it.
    let mut line = serde_json::to_vec(&resize).unwrap();
    line.push(b'\n');
    late.write_all(&line).unwrap();
    late.set_read_timeout(Some(SOON)).unwrap();
    let carrying = std::thread::spawn(move || {
        orders.run(|_, _| {
            std::thread::sleep(Duration::from_millis(50));
            Reply::Error { message: "another process takes over".to_owned() }
        });
    });
    stopper.stop();
    assert!(!clients.turn());
    drop(clients);
    for mut client in [waits, late] {
        let mut told = String::new();
        client.read_to_string(&mut told).unwrap();
        assert!(told.contains("takes over") && told.ends_with('\n'), "{told:?}");
    }
    carrying.join().unwrap();
}

/// Nothing of it was done: whoever is slow need not look.
#[test]
fn who_has_not_said_all_at_the_end_is_told_to_try_again() {
    let (mut clients, orders, path, _folder) = served(10);
    let stopper = clients.stopper(&orders).unwrap();
    let silent = UnixStream::connect(&path).unwrap();
    let mut slow = UnixStream::connect(&path).unwrap();
    slow.write_all(b"{\"request\":").unwrap();
    while clients.clients.len() < 2 {
        clients.turn();
    }
    stopper.stop();
    assert!(!clients.turn());
    drop(clients);
    for mut client in [silent, slow] {
        client.set_read_timeout(Some(SOON)).unwrap();
        let mut told = String::new();
        client.read_to_string(&mut told).unwrap();
        assert!(told.contains("takes over; try: again") && told.ends_with('\n'), "{told:?}");
    }
}

/// A cluster that does not answer keeps an order for its disk, and no other one.
#[test]
fn an_order_that_hangs_holds_up_none_for_another_lun() {
    let (mut clients, orders, path, _folder) = served(10);
    std::thread::spawn(move || {
        loop {
            clients.turn();
        }
    });
    let (go, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    std::thread::spawn(move || {
        orders.run(|order, _| {
            let is_far = |lun: &NewLun| lun.store.starts_with("rbd:");
            if matches!(order, Request::ResizeLun { lun: 0, .. })
                || matches!(order, Request::AddLun { lun, .. } if is_far(lun))
            {
                let _ = gate.lock().unwrap().recv();
            }
            Reply::Done
        });
    });
    let resize = |lun| Request::ResizeLun { target: None, lun, bytes: 512, shrink: false };
    let add = |store: &str| {
        let lun = NewLun {
            store: store.to_owned(),
            block: None,
            protection: None,
            serial: None,
            space_warning: None,
            initiators: Vec::new(),
        };
        Request::AddLun { target: None, number: None, lun }
    };
    let mut hung = [resize(0), resize(0), add("rbd:a/b")].map(|order| ask(&path, &order));
    assert!(answer(ask(&path, &resize(1))) > 0);
    assert!(answer(ask(&path, &add("memory:1M"))) > 0);
    assert!(answer(ask(&path, &Request::RescanLuns)) > 0);
    for one in &mut hung {
        one.set_nonblocking(true).unwrap();
        let nothing = one.read(&mut [0]).unwrap_err();
        assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
        one.set_nonblocking(false).unwrap();
    }
    drop(go);
    hung.into_iter().for_each(|one| assert!(answer(one) > 0));
}

#[test]
fn questions_do_not_wait_for_orders_and_there_is_an_end_of_orders() {
    let (mut clients, orders, path, _folder) = served(10);
    std::thread::spawn(move || {
        loop {
            clients.turn();
        }
    });
    let (go, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    std::thread::spawn(move || {
        orders.run(|_, _| {
            let _ = gate.lock().unwrap().recv();
            Reply::Done
        });
    });
    // One is under way, the others wait or are refused; none of them has to go.
    let ordered: Vec<UnixStream> =
        (0..CLIENTS_MAX + 10).map(|_| ask(&path, &Request::RescanLuns)).collect();
    let idle: Vec<UnixStream> =
        (0..CLIENTS_MAX + 10).map(|_| UnixStream::connect(&path).unwrap()).collect();
    assert!(answer(ask(&path, &Request::Status)) > 10);
    drop(go);
    let mut answers: Vec<usize> = ordered.into_iter().map(answer).collect();
    answers.sort_unstable();
    let done = serde_json::to_vec(&Reply::Done).unwrap().len() + 1;
    let carried_out = answers.iter().filter(|length| **length == done).count();
    assert_eq!(carried_out, ORDERS_MAX);
    assert!(answers.iter().all(|length| *length > 0), "the others are told");
    drop(idle);
}
