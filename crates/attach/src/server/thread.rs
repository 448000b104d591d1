// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread that serves: connections on one side, the disk on the other.

mod requests;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::SyncSender;

use clock::Instant;
use engine::Event;
use engine::Port;
use engine::Token;
use engine::Waker;
use engine::Work;
use initiator::CompletionQueue;
use initiator::Disk;
use initiator::Pool;
use nbd::Export;
use nbd::Handshake;
use nbd::Item;
use nbd::Outcome;
use slab::Slab;

use self::requests::Owner;
use self::requests::Question;
use super::Error;
use super::News;
use super::Settings;
use super::Stop;
use super::gossip::Gossip;
use crate::carrier::Carrier;
use crate::client::Client;
use crate::client::End;
use crate::client::Phase;
use crate::client::Writing;
use crate::limits;
use crate::tls::Peer;
use crate::tls::Secure;

/// What the thread is made of.
pub(super) struct Parts {
    pub(super) export: Export,
    pub(super) disk: Disk,
    pub(super) pool: Pool,
    pub(super) connections: Receiver<OwnedFd>,
    pub(super) news: SyncSender<News>,
    pub(super) stop: Arc<Stop>,
    pub(super) settings: Settings,
}

impl Parts {
    pub(super) fn serve<P: Port>(
        self,
        port: std::io::Result<P>,
        ready: &mpsc::Sender<std::io::Result<Waker>>,
    ) -> Result<(), Error> {
        let port = match port {
            Ok(port) => port,
            Err(error) => {
                // The starter waits for it.
                let _ = ready.send(Err(error));
                return Ok(());
            }
        };
        let completions = CompletionQueue::waking(port.waker())?;
        let settling = Arc::clone(&self.stop.settling);
        let keep_bytes = self.settings.keep_bytes;
        let carrier = Carrier::new(self.disk.clone(), completions, keep_bytes, settling);
        let _ = ready.send(Ok(port.waker()));
        let server = Server {
            port,
            export: self.export,
            disk: self.disk,
            pool: self.pool,
            connections: self.connections,
            news: self.news,
            stop: self.stop,
            carrier,
            clients: Slab::new(),
            settings: self.settings,
            questions: Vec::new(),
            touched: Vec::new(),
            blocked: false,
            gossip: Gossip::default(),
        };
        server.run()
    }
}

struct Server<P> {
    port: P,
    export: Export,
    disk: Disk,
    pool: Pool,
    connections: Receiver<OwnedFd>,
    news: SyncSender<News>,
    stop: Arc<Stop>,
    carrier: Carrier<Owner>,
    clients: Slab<Client>,
    settings: Settings,
    questions: Vec<Question>,
    /// Clients that something has happened to since the last look.
    touched: Vec<usize>,
    /// A request waits for memory.
    blocked: bool,
    gossip: Gossip,
}

impl<P: Port> Server<P> {
    fn run(mut self) -> Result<(), Error> {
        let mut stopping: Option<Instant> = None;
        loop {
            while let Some((token, event)) = self.port.next_event() {
                self.on_event(token, event);
            }
            while let Ok(connection) = self.connections.try_recv() {
                self.welcome(connection);
            }
            self.reap();
            self.hear();
            self.ask_again();
            let now = self.port.now();
            if stopping.is_none() && self.stop.wanted.load(Ordering::Acquire) {
                let grace = self.stop.grace.lock();
                let grace = *grace.unwrap_or_else(PoisonError::into_inner);
                stopping = Some(now + grace);
                self.dismiss();
            }
            if stopping.is_some_and(|until| now >= until) {
                let open: Vec<usize> = self.clients.iter().map(|(key, _)| key).collect();
                open.into_iter().for_each(|key| self.close(key));
            }
            self.look_at_clocks(now);
            self.look_at_touched(now);
            self.carrier.advance();
            self.deliver();
            let served = self.clients.iter().all(|(_, client)| client.end == End::Closed);
            if stopping.is_some() && served {
                return self.leave();
            }
            let deadline = self.next_deadline(now, stopping);
            self.port.wait(deadline);
        }
    }

    fn next_deadline(&self, now: Instant, stopping: Option<Instant>) -> Option<Instant> {
        let handshakes = self.clients.iter().filter_map(|(_, client)| match client.phase {
            Phase::Handshake(_, until) if client.end != End::Closed => Some(until),
            _ => None,
        });
        let wants_turn = self.blocked || self.carrier.wants_turn();
        let room = wants_turn.then(|| now + limits::ROOM_INTERVAL);
        // What has ended in this round.
        let touched = (!self.touched.is_empty()).then_some(now);
        let gossip = self.gossip.deadline();
        handshakes.chain(stopping).chain(room).chain(touched).chain(gossip).min()
    }

    fn on_event(&mut self, token: Token, event: Event) {
        let Some(key) = key_of(token) else { return };
        match event {
            Event::Received { bytes } => self.come(key, &bytes),
            Event::ReceiveEnded { .. } => {
                let Some(client) = self.clients.get_mut(key) else { return };
                client.receiving = false;
                self.hear_no_more(key);
                self.touched.push(key);
            }
            Event::Sent { list, result } => {
                let Some(client) = self.clients.get_mut(key) else { return };
                client.sent(list);
                if result.is_err() {
                    self.close(key);
                }
                self.touched.push(key);
            }
            _ => {}
        }
    }

    fn welcome(&mut self, connection: OwnedFd) {
        let open = self.clients.iter().filter(|(_, client)| client.end != End::Closed).count();
        if open >= limits::CLIENTS_MAX && !self.displace() {
            let text = format!("a connection was refused: there are {open}, as many as may be");
            self.tell_of_client(text);
            return;
        }
        self.stop.clients.fetch_add(1, Ordering::AcqRel);
        let socket = self.port.add_socket(connection);
        let mut greeting = Vec::new();
        let tls = if self.settings.tls.is_some() { nbd::Tls::Forced } else { nbd::Tls::Never };
        let handshake = Handshake::begin(tls, &mut greeting);
        let deadline = self.port.now() + self.settings.handshake_timeout;
        let mut client = Client::new(socket, handshake, deadline);
        client.say(&greeting);
        let key = self.clients.insert(client);
        self.port.submit(token_of(key), Work::Receive { socket });
        self.touched.push(key);
    }

    /// One that has long been negotiating makes room: whoever only connects would keep out all
    /// others.
    fn displace(&mut self) -> bool {
        let latest = self.port.now() + self.settings.handshake_timeout;
        let begun = self.clients.iter().filter_map(|(key, client)| match client.phase {
            Phase::Handshake(_, until) if client.end != End::Closed => Some((until, key)),
            _ => None,
        });
        let oldest = begun.min().filter(|(until, _)| latest.since(*until) >= limits::HANDSHAKE_MIN);
        let Some((_, key)) = oldest else { return false };
        let why = "a connection was closed: its negotiation took long, and others came";
        self.tell_of_client(why.into());
        self.close(key);
        true
    }

    /// Bytes have come, plain or inside of TLS.
    fn come(&mut self, key: usize, bytes: &[u8]) {
        let Some(client) = self.clients.get_mut(key) else { return };
        if !client.is_secure() {
            return self.take_in(key, bytes);
        }
        if client.end != End::Open {
            return;
        }
        match client.open(bytes) {
            Ok((plain, peer)) => {
                if !plain.is_empty() {
                    self.take_in(key, &plain);
                }
                if peer == Peer::HasLeft {
                    self.hear_no_more(key);
                }
            }
            Err(error) => self.send_away(key, &format!("TLS: {error}")),
        }
        // TLS may have something to say itself.
        self.touched.push(key);
    }

    /// Nothing more comes of a client. What it has asked for is carried out, though it may not hear
    /// of it.
    fn hear_no_more(&mut self, key: usize) {
        if let Some(client) = self.clients.get_mut(key)
            && client.end == End::Open
        {
            client.end = End::WhenAnswered;
            client.writing = None;
        }
    }

    /// Bytes of a client have come.
    fn take_in(&mut self, key: usize, bytes: &[u8]) {
        let Some(client) = self.clients.get_mut(key) else { return };
        if client.end != End::Open {
            return;
        }
        if client.held.is_empty() {
            let rest = self.understand(key, bytes);
            if let Some(client) = self.clients.get_mut(key) {
                client.held.extend_from_slice(rest);
            }
        } else {
            client.held.extend_from_slice(bytes);
        }
        self.touched.push(key);
    }

    /// Looks again at what a client has sent and was not looked at.
    fn take_up(&mut self, key: usize) {
        loop {
            let Some(client) = self.clients.get_mut(key) else { return };
            if client.held.is_empty() || client.end != End::Open || client.blocked.is_some() {
                return;
            }
            let mut held = std::mem::take(&mut client.held);
            let left = self.understand(key, &held).len();
            let done = left == held.len();
            held.drain(..held.len() - left);
            let Some(client) = self.clients.get_mut(key) else { return };
            // A negotiation that has ended has put back what came behind it.
            held.append(&mut client.held);
            client.held = held;
            if done {
                return;
            }
        }
    }

    /// Carries out what stands in `bytes`, as far as the client may ask; gives the rest.
    fn understand<'a>(&mut self, key: usize, mut bytes: &'a [u8]) -> &'a [u8] {
        while let Some(client) = self.clients.get_mut(key) {
            if client.end != End::Open {
                return &[];
            }
            if client.blocked.is_some() || client.writing.is_none() && !client.may_ask() {
                return bytes;
            }
            let item = match &mut client.phase {
                Phase::Handshake(handshake, _) => {
                    if bytes.is_empty() {
                        return bytes;
                    }
                    let mut out = Vec::new();
                    let outcome = handshake.receive(bytes, &self.export, &mut out);
                    bytes = &[];
                    client.say(&out);
                    match outcome {
                        Ok(Outcome::More) => {}
                        Ok(Outcome::End) => client.end = End::WhenAnswered,
                        Ok(Outcome::StartTls) => self.start_tls(key),
                        Ok(Outcome::Begin { agreed, rest }) => {
                            client.phase = Phase::Serving(nbd::Receiver::default(), agreed);
                            client.held = rest;
                        }
                        Err(violation) => self.send_away(key, &violation),
                    }
                    continue;
                }
                Phase::Serving(receiver, _) => receiver.next(&mut bytes),
            };
            match item {
                Ok(None) => return bytes,
                Ok(Some(Item::Request(request))) => self.accept(key, request),
                Ok(Some(Item::Data(data))) => {
                    let Some(writing) = &mut client.writing else { continue };
                    if writing.take(data)
                        && let Some(Writing { request, to, .. }) = client.writing.take()
                    {
                        self.write(key, request, to);
                    }
                }
                Err(violation) => self.send_away(key, &violation),
            }
        }
        &[]
    }

    fn start_tls(&mut self, key: usize) {
        let Some(client) = self.clients.get_mut(key) else { return };
        let Some(tls) = &self.settings.tls else { return };
        match Secure::begin(tls) {
            Ok(secure) => client.start_tls(secure),
            Err(error) => self.send_away(key, &error),
        }
    }

    fn send_away(&mut self, key: usize, why: &dyn std::fmt::Display) {
        self.tell_of_client(format!("a connection was closed: {why}"));
        match self.clients.get_mut(key) {
            // What it has asked for in order is answered.
            Some(client) => client.end = End::WhenAnswered,
            None => return,
        }
        self.touched.push(key);
    }

    /// Time-outs, and requests that wait for memory.
    fn look_at_clocks(&mut self, now: Instant) {
        if let Some(text) = self.gossip.sum_up(now) {
            self.tell(News::Client(text));
        }
        let late: Vec<usize> = self
            .clients
            .iter()
            .filter(|(_, client)| match client.phase {
                Phase::Handshake(_, until) => client.end != End::Closed && now >= until,
                Phase::Serving(..) => false,
            })
            .map(|(key, _)| key)
            .collect();
        for key in late {
            self.tell_of_client("a connection was closed: its negotiation took too long".into());
            self.close(key);
        }
        let is_hungry = std::mem::take(&mut self.blocked) || self.carrier.is_hungry();
        if !is_hungry && !self.carrier.wants_turn() {
            return;
        }
        if is_hungry {
            self.make_room(now);
        }
        self.carrier.feed();
        self.deliver();
        let waiting: Vec<usize> = self
            .clients
            .iter()
            .filter(|(_, client)| client.blocked.is_some())
            .map(|(key, _)| key)
            .collect();
        for key in waiting {
            let Some(client) = self.clients.get_mut(key) else { continue };
            if let Some(request) = client.blocked.take() {
                self.begin(key, request);
                self.touched.push(key);
            }
        }
    }

    /// Who neither reads nor ends a write holds memory that others wait for.
    fn make_room(&mut self, now: Instant) {
        let patience = self.settings.slow_reader;
        let mut stuck = None;
        // All are looked at: it is noted how far their writes are.
        for (key, client) in &mut self.clients {
            let why = client.is_stuck(now, patience).map(|why| (key, why));
            stuck = stuck.or(why);
        }
        if let Some((key, why)) = stuck {
            let text = format!("a connection was closed: {why}, and others lack memory");
            self.tell_of_client(text);
            self.close(key);
        }
    }

    /// Goes on with clients that something has happened to: takes what they have sent, sends what
    /// is for them, and forgets those that are gone.
    fn look_at_touched(&mut self, now: Instant) {
        while let Some(key) = self.touched.pop() {
            self.take_up(key);
            let Some(client) = self.clients.get_mut(key) else { continue };
            if client.end == End::Open {
                let socket = client.socket;
                let pause = !client.held.is_empty();
                if pause != client.paused {
                    client.paused = pause;
                    match pause {
                        true => self.port.pause(socket),
                        false => self.port.resume(socket),
                    }
                }
            }
            if let Some(list) = client.next_send(now) {
                let socket = client.socket;
                self.port.submit(token_of(key), Work::Send { socket, list });
            } else if client.end == End::WhenAnswered && client.is_answered() {
                self.close(key);
            }
            if self.clients.get(key).is_some_and(Client::is_gone) {
                self.clients.remove(key);
            }
        }
    }

    fn close(&mut self, key: usize) {
        let Some(client) = self.clients.get_mut(key) else { return };
        if client.end == End::Closed {
            return;
        }
        client.close();
        self.stop.clients.fetch_sub(1, Ordering::AcqRel);
        let socket = client.socket;
        self.port.shutdown(socket);
        self.port.close(socket);
        self.touched.push(key);
    }

    /// Nothing more is taken from clients.
    fn dismiss(&mut self) {
        for (key, client) in &mut self.clients {
            if client.end == End::Open {
                client.end = End::WhenAnswered;
                client.writing = None;
                client.blocked = None;
            }
            self.touched.push(key);
        }
    }

    /// Waits for all that is under way at the disk for some time, and flushes it.
    fn leave(mut self) -> Result<(), Error> {
        let until = self.port.now() + limits::LAST_FLUSH;
        self.carrier.finish();
        loop {
            self.reap();
            while let Some((token, event)) = self.port.next_event() {
                self.on_event(token, event);
            }
            if let Some(result) = self.carrier.finished() {
                return result;
            }
            let now = self.port.now();
            if now >= until {
                return self.carrier.unfinished();
            }
            self.carrier.feed();
            self.port.wait(match self.carrier.wants_turn() {
                true => Some(until.min(now + limits::ROOM_INTERVAL)),
                false => Some(until),
            });
        }
    }

    fn tell_of_client(&mut self, text: String) {
        if self.gossip.may_tell(self.port.now()) {
            self.tell(News::Client(text));
        }
    }

    fn tell(&self, news: News) {
        // Who does not listen does not want to know.
        let _ = self.news.try_send(news);
    }
}

fn token_of(key: usize) -> Token {
    Token(key as u64 + 1)
}

fn key_of(token: Token) -> Option<usize> {
    usize::try_from(token.0.checked_sub(1)?).ok()
}
