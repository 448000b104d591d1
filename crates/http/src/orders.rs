// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Orders: what changes something, of who has a token for that. Each is an order of the control
//! socket, as JSON in the body of a POST.

use std::error::Error;

use control::admin::REQUEST_LEN_MAX;
use control::admin::Reply;
use control::admin::Request as Order;
use http_body_util::BodyExt;
use http_body_util::Limited;
use hyper::Method;
use hyper::Request;
use hyper::StatusCode;
use hyper::body::Body;
use hyper::body::Bytes;
use hyper::header;
use store::spec::Spec;
use tokio::time;

use crate::access::Denied;
use crate::access::expect_right;
use crate::api::Giver;
use crate::connections::Peer;
use crate::limits::HEAD_WAIT;
use crate::looks::Looks;
use crate::tokens::Right;

/// Where they are given.
pub(crate) const PATH: &str = "/api/v1/orders";

/// Those that are taken.
const ORDERS: &str = "reload, drop-session, logout-session, set-port-group, set-limit, resize-lun, \
                      add-lun and remove-lun are right";

const JSON: &[u8] = b"application/json";

/// Why an order is not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) why: String,
    /// It was for want of a token.
    pub(crate) denied: Option<Denied>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, why: impl Into<String>) -> Self {
        Self { status, why: why.into(), denied: None }
    }

    pub(crate) fn denied(self, by: Denied) -> Self {
        Self { denied: Some(by), ..self }
    }

    /// As the control socket would say it.
    pub(crate) fn text(self) -> Bytes {
        Reply::Error { message: self.why }.line().into()
    }
}

/// The order in a request, and who gives it, who may.
pub(crate) async fn of<B>(looks: &Looks, request: Request<B>) -> Result<(Order, Giver), Refusal>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    if request.method() != Method::POST {
        return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "POST is right here"));
    }
    if !is_of_this_site(looks.gate().scheme(), &request) {
        let why = "no page of another site may give orders";
        return Err(Refusal::new(StatusCode::FORBIDDEN, why));
    }
    let Some(tokens) = looks.gate().tokens() else {
        let why = "nothing can be changed over HTTP: this daemon has no tokens; \
                   try: http-token-file in its configuration";
        return Err(Refusal::new(StatusCode::FORBIDDEN, why));
    };
    let token = expect_right(Right::Change, tokens, &request)?.to_string();
    let peer = request.extensions().get::<Peer>().map(|Peer(address)| *address);
    let giver = Giver { peer, token };
    // A form of another site has other types, and asks nobody before it is sent.
    let kind = request.headers().get(header::CONTENT_TYPE).map(|kind| kind.as_bytes());
    let kind = kind.and_then(|kind| kind.split(|byte| *byte == b';').next());
    if !kind.is_some_and(|kind| kind.trim_ascii().eq_ignore_ascii_case(JSON)) {
        let why = "Content-Type: application/json is right";
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
    }
    let body = Limited::new(request.into_body(), REQUEST_LEN_MAX).collect();
    let body = match time::timeout(HEAD_WAIT, Box::pin(body)).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) => {
            let why = format!("an order has {REQUEST_LEN_MAX} bytes at most, and comes whole");
            return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, why));
        }
        Err(_) => {
            return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "the order took too long"));
        }
    };
    let order = Order::of_line(&body).map_err(|error| {
        let why = match error.split_once(", expected one of ") {
            // What others may ask for is no order here.
            Some((what, _)) if what.starts_with("unknown variant") => format!("{what}; {ORDERS}"),
            _ => error,
        };
        Refusal::new(StatusCode::BAD_REQUEST, format!("no order: {why}"))
    })?;
    if is_for_all(&order) {
        return Ok((order, giver));
    }
    let why = match order {
        Order::AddLun { .. } => {
            "over HTTP a LUN comes that names no place of the machine, as memory:SIZE; \
             try: the configuration file and reload, or lunwire lun add"
        }
        _ => &format!("this is not done over HTTP; {ORDERS}; try: the control socket"),
    };
    Err(Refusal::new(StatusCode::FORBIDDEN, why))
}

/// Orders that name no place of the machine: who has a token is to change what is served, and not
/// to have files opened or made.
pub(crate) fn is_for_all(order: &Order) -> bool {
    match order {
        Order::Reload { .. }
        | Order::DropSession { .. }
        | Order::LogoutSession { .. }
        | Order::SetPortGroup { .. }
        | Order::SetLimit { .. }
        | Order::ResizeLun { .. }
        | Order::RemoveLun { .. } => true,
        // Read as the daemon reads it; what is no store is none here, too.
        Order::AddLun { lun, .. } => lun.store.parse::<Spec>().is_ok_and(|it| it.is_by_itself()),
        _ => false,
    }
}

/// Whether it is by no page of a browser, or by one from here. What a browser says of who has made
/// a request is looked at for all paths of the API; this one older browsers say, too.
fn is_of_this_site<B>(scheme: &[u8], request: &Request<B>) -> bool {
    let host = request.headers().get(header::HOST).map(|host| host.as_bytes());
    let mut origins = request.headers().get_all(header::ORIGIN).into_iter();
    origins.all(|origin| {
        let here = origin.as_bytes().strip_prefix(scheme);
        here.is_some() && here == host
    })
}
