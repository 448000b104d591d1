// SPDX-License-Identifier: Apache-2.0 OR MIT
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::vec;

use super::*;

/// A case of all four algorithms. Binary values stand in both forms, hex and base64.
struct Vector {
    identifier: u8,
    secret: &'static str,
    challenge: [&'static str; 2],
    /// MD5, SHA-1, SHA-256, SHA3-256.
    responses: [[&'static str; 2]; 4],
}

const VECTORS: [Vector; 3] = [
    Vector {
        identifier: 1,
        secret: "secretsecret1234",
        challenge: ["0x000102030405060708090a0b0c0d0e0f", "0bAAECAwQFBgcICQoLDA0ODw=="],
        responses: [
            ["0xab7c55adbe54eac30221152f0cf60099", "0bq3xVrb5U6sMCIRUvDPYAmQ=="],
            ["0xc5bfb65fb22e49adf81455c3ece6648aa556d300", "0bxb+2X7IuSa34FFXD7OZkiqVW0wA="],
            [
                "0xb2646b71529fe738d17b66d5baad4a2aafe06150d842bb92ff92ff56a743f83e",
                "0bsmRrcVKf5zjRe2bVuq1KKq/gYVDYQruS/5L/VqdD+D4=",
            ],
            [
                "0xc07ca546f8add2f381491ab26acf9efee892ff39c7458d9d1f4b9f9646b28e4c",
                "0bwHylRvit0vOBSRqyas+e/uiS/znHRY2dH0uflkayjkw=",
            ],
        ],
    },
    Vector {
        identifier: 255,
        secret: "0x00112233445566778899aabbccddeeff",
        challenge: [
            "0xc0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00",
            "0bwP/uAMD/7gDA/+4AwP/uAMD/7gDA/+4AwP/uAMD/7gA=",
        ],
        responses: [
            ["0xd2db24adc397bdcb046251d170fa1b08", "0b0tskrcOXvcsEYlHRcPobCA=="],
            ["0xc439301b93b48cdef038355f5e088efa9c550d0f", "0bxDkwG5O0jN7wODVfXgiO+pxVDQ8="],
            [
                "0x372f93fa420be01dcf7816ea5b29e32724239cafdc1064903a00c8ff159efe80",
                "0bNy+T+kIL4B3PeBbqWynjJyQjnK/cEGSQOgDI/xWe/oA=",
            ],
            [
                "0xfb5fde0da60eee9aae6983e7b74dbd402a48a33abc9acd3393d0dec39e46ad36",
                "0b+1/eDaYO7pquaYPnt029QCpIozq8ms0zk9Dew55GrTY=",
            ],
        ],
    },
    Vector {
        identifier: 0,
        secret: "xxxxxxxxxxxx",
        challenge: [
            "0x000000000000000000000000000000000000000080",
            "0bAAAAAAAAAAAAAAAAAAAAAAAAAACA",
        ],
        responses: [
            ["0xf6e2a19eecc70ed1343f5f139b63656d", "0b9uKhnuzHDtE0P18Tm2NlbQ=="],
            ["0xc76fb9831dbfed3e1794e928c61421d943dae6ae", "0bx2+5gx2/7T4XlOkoxhQh2UPa5q4="],
            [
                "0xf95b22bc60f1576e0934f5576eea1f58468c5e0e96d5ff43a33c937fc3fa09b2",
                "0b+VsivGDxV24JNPVXbuofWEaMXg6W1f9DozyTf8P6CbI=",
            ],
            [
                "0xb7281802859996cf903bc621911bd5ccf10d34670fc8a97341ed5b8b68cf80a0",
                "0btygYAoWZls+QO8YhkRvVzPENNGcPyKlzQe1bi2jPgKA=",
            ],
        ],
    },
];

const ALGORITHMS: [Algorithm; 4] =
    [Algorithm::Md5, Algorithm::Sha1, Algorithm::Sha256, Algorithm::Sha3_256];
const TARGET_SECRET: &str = "targetsecret5678";

fn credentials(name: &str, secret: &str) -> Credentials {
    let secret = Secret::from_text(secret.as_bytes()).expect("a good secret");
    Credentials::new(name.to_owned(), secret).expect("a good name")
}

fn policy(secret: &str, target: Option<&str>) -> Policy {
    let target = target.map(|secret| credentials("diskuser", secret));
    let account = Account::new(credentials("hostuser", secret), target).expect("two secrets");
    Policy {
        accounts: vec![Arc::new(account)],
        algorithms: Algorithm::ALL.to_vec(),
        mutual: Mutual::OnRequest,
    }
}

fn challenge(identifier: u8, value: &str) -> Challenge {
    Challenge::read(&format!("{identifier}"), value).expect("a good challenge")
}

/// An exchange of case A that waits for the response to SHA-256.
fn challenged(policy: Policy) -> Exchange {
    let vector = &VECTORS[0];
    let mut exchange = Exchange::new(policy, challenge(1, vector.challenge[0]));
    let reply = exchange.handle(&Keys { algorithms: Some("7,5"), ..Keys::default() });
    assert!(matches!(reply, Ok(Reply::Challenge(Algorithm::Sha256, _))));
    exchange
}

const RIGHT: &str = VECTORS[0].responses[2][0];

fn proof(response: &str) -> Keys<'_> {
    Keys { name: Some("hostuser"), response: Some(response), ..Keys::default() }
}

fn with_challenge<'a>(identifier: &'a str, challenge: &'a str) -> Keys<'a> {
    Keys { identifier: Some(identifier), challenge: Some(challenge), ..proof(RIGHT) }
}

/// The error of a first response, after which the exchange is dead.
#[track_caller]
fn failed(mut exchange: Exchange, keys: &Keys<'_>) -> Error {
    let error = exchange.handle(keys).expect_err("it must fail");
    assert_eq!(exchange.proved(), None);
    assert_eq!(exchange.handle(&proof(RIGHT)).expect_err("it is over"), Error::Over);
    error
}

/// The response of the other side, written by this test's own hand.
fn answer(algorithm: Algorithm, challenge: &Challenge, secret: &str) -> String {
    let secret = Secret::from_text(secret.as_bytes()).expect("a good secret");
    let response = algorithm.response(challenge.identifier(), &secret, challenge.as_bytes());
    let digits = response.as_bytes().iter().map(|byte| format!("{byte:02x}"));
    format!("0x{}", digits.collect::<String>())
}

/// Covers: CHP-14/S, NEG-08/T.
#[test]
fn vectors_in_every_form() {
    for vector in &VECTORS {
        for (algorithm, response) in ALGORITHMS.into_iter().zip(vector.responses) {
            for value in vector.challenge {
                for form in [response[0], response[1], &response[0].to_uppercase()] {
                    let challenge = challenge(vector.identifier, value);
                    let mut exchange = Exchange::new(policy(vector.secret, None), challenge);
                    let offer = format!("{}", algorithm.number());
                    let keys = Keys { algorithms: Some(&offer), ..Keys::default() };
                    let Ok(Reply::Challenge(chosen, sent)) = exchange.handle(&keys) else {
                        panic!("no challenge");
                    };
                    assert_eq!((chosen, sent.identifier()), (algorithm, vector.identifier));
                    assert!(matches!(exchange.handle(&proof(form)), Ok(Reply::Nothing)), "{form}");
                    assert_eq!(exchange.proved(), Some("hostuser"));
                }
            }
        }
    }
}

#[test]
fn leading_zeros_are_kept() {
    let challenge = challenge(0, VECTORS[2].challenge[0]);
    assert_eq!(challenge.as_bytes().len(), 21);
    assert_eq!(challenge.as_bytes()[..20], [0; 20]);
}

/// Covers: CHP-06.
#[test]
fn the_order_of_the_initiator_decides() {
    let mut policy = policy("secretsecret1234", None);
    let choose = |policy: &Policy, offer: &str| -> Result<Algorithm, Error> {
        let mut exchange = Exchange::new(policy.clone(), challenge(1, "0x01"));
        match exchange.handle(&Keys { algorithms: Some(offer), ..Keys::default() })? {
            Reply::Challenge(algorithm, challenge) => {
                assert_eq!((challenge.identifier(), challenge.as_bytes()), (1, &[1][..]));
                Ok(algorithm)
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(choose(&policy, "5,7"), Ok(Algorithm::Md5));
    assert_eq!(choose(&policy, "7,5"), Ok(Algorithm::Sha256));
    assert_eq!(choose(&policy, "8,7,6,5"), Ok(Algorithm::Sha3_256));
    assert_eq!(choose(&policy, "5"), Ok(Algorithm::Md5));
    assert_eq!(choose(&policy, "99,6"), Ok(Algorithm::Sha1));
    assert_eq!(choose(&policy, "99").unwrap_err().status(), 0x0201);
    for malformed in ["", "MD5", "5,", "-5", "5, 7"] {
        assert_eq!(choose(&policy, malformed).unwrap_err().status(), 0x0200, "{malformed}");
    }
    policy.algorithms = vec![Algorithm::Md5, Algorithm::Sha256];
    assert_eq!(
        choose(&policy, "8,7,6,5"),
        Ok(Algorithm::Sha256),
        "what is not allowed is left out"
    );
    policy.algorithms = vec![Algorithm::Sha3_256];
    assert_eq!(choose(&policy, "5,6,7"), Err(Error::Algorithm("5,6,7".into())));
}

/// Covers: CHP-08.
#[test]
fn wrong_response_and_unknown_name_end_alike() {
    let short = &RIGHT[..RIGHT.len() - 2];
    let long = format!("{RIGHT}00");
    let other = VECTORS[0].responses[3][0];
    let empty_base64 = "0b====";
    for response in [short, &long, other, "0x00", "1"] {
        let error = failed(challenged(policy("secretsecret1234", None)), &proof(response));
        assert_eq!((error.status(), error), (0x0201, Error::Response("hostuser".into())));
    }
    for malformed in ["0x", "0xzz", "", "hello", empty_base64] {
        let error = failed(challenged(policy("secretsecret1234", None)), &proof(malformed));
        assert_eq!((error.status(), error), (0x0200, Error::Malformed("CHAP_R")));
    }
    for name in ["hostuse", "hostuser1", "Hostuser", "", "diskuser"] {
        let keys = Keys { name: Some(name), ..proof(RIGHT) };
        let error = failed(challenged(policy("secretsecret1234", Some(TARGET_SECRET))), &keys);
        assert_eq!((error.status(), error), (0x0201, Error::Name(name.into())));
    }
    let nobody = Policy { accounts: Vec::new(), ..policy("secretsecret1234", None) };
    assert_eq!(failed(challenged(nobody), &proof(RIGHT)).status(), 0x0201);
}

/// Covers: CHP-11.
#[test]
fn keys_that_are_missing_or_do_not_belong() {
    let right = || challenged(policy("secretsecret1234", Some(TARGET_SECRET)));
    let no_response = Keys { response: None, ..with_challenge("42", "0xf0f1") };
    let no_name = Keys { name: None, ..proof(RIGHT) };
    let no_identifier = Keys { identifier: None, ..with_challenge("42", "0xf0f1") };
    let no_challenge = Keys { challenge: None, ..with_challenge("42", "0xf0f1") };
    let missing = [
        (no_response, "CHAP_R"),
        (no_name, "CHAP_N"),
        (no_identifier, "CHAP_I"),
        (no_challenge, "CHAP_C"),
        (Keys::default(), "CHAP_N"),
    ];
    for (keys, key) in missing {
        let error = failed(right(), &keys);
        assert_eq!((error.status(), error), (0x0207, Error::Missing(key)));
    }
    let again = Keys { algorithms: Some("5"), ..proof(RIGHT) };
    assert_eq!(failed(right(), &again), Error::Unexpected("CHAP_A"));
    let first = Exchange::new(policy("secretsecret1234", None), challenge(1, "0x01"));
    let early = Keys { algorithms: Some("5"), ..proof(RIGHT) };
    let error = failed(first, &early);
    assert_eq!((error.status(), error), (0x0200, Error::Unexpected("CHAP_N")));
}

#[test]
fn steps_without_keys_wait_and_keys_after_the_end_fail() {
    let mut exchange =
        Exchange::new(policy("secretsecret1234", None), challenge(1, VECTORS[0].challenge[0]));
    assert!(matches!(exchange.handle(&Keys::default()), Ok(Reply::Nothing)));
    assert_eq!(exchange.proved(), None);
    exchange.handle(&Keys { algorithms: Some("7"), ..Keys::default() }).unwrap();
    exchange.handle(&proof(RIGHT)).unwrap();
    assert!(matches!(exchange.handle(&Keys::default()), Ok(Reply::Nothing)));
    assert_eq!(exchange.proved(), Some("hostuser"));
    assert_eq!(exchange.handle(&proof(RIGHT)).unwrap_err(), Error::Over);
    assert_eq!(exchange.proved(), None);
}

/// Covers: CHP-09.
#[test]
fn the_target_proves_itself() {
    let theirs = "0xf0f1f2f3f4f5f6f7f8f9fafbfcfdfeff";
    let base64 = "0b8PHy8/T19vf4+fr7/P3+/w==";
    for (value, wanted) in [(theirs, BinaryForm::Hex), (base64, BinaryForm::Base64)] {
        let mut exchange = challenged(policy("secretsecret1234", Some(TARGET_SECRET)));
        let reply = exchange.handle(&with_challenge("42", value));
        let Ok(Reply::Proof { name, response, form }) = reply else { panic!("{reply:?}") };
        assert_eq!((name.as_str(), form), ("diskuser", wanted));
        let digits: String = response.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digits, "7f0fe7d2a75ad80865f4158892658f7020c50430c0f74633de072a7147a62b3c");
    }
    let error = failed(challenged(policy("secretsecret1234", None)), &with_challenge("42", theirs));
    assert_eq!((error.status(), error), (0x0201, Error::NoTargetSecret("hostuser".into())));
    // A wrong response of the initiator gets no answer, whatever it asks.
    let wrong = Keys { response: Some("0x00"), ..with_challenge("42", theirs) };
    let error = failed(challenged(policy("secretsecret1234", Some(TARGET_SECRET))), &wrong);
    assert_eq!(error, Error::Response("hostuser".into()));
}

#[test]
fn mutual_authentication_can_be_required() {
    let mut policy = policy("secretsecret1234", Some(TARGET_SECRET));
    policy.mutual = Mutual::Required;
    let error = failed(challenged(policy.clone()), &proof(RIGHT));
    assert_eq!((error.status(), error), (0x0201, Error::MutualRequired("hostuser".into())));
    let mut exchange = challenged(policy);
    assert!(matches!(exchange.handle(&with_challenge("0", "0x01")), Ok(Reply::Proof { .. })));
}

#[test]
fn identifiers_are_one_byte() {
    let right = || challenged(policy("secretsecret1234", Some(TARGET_SECRET)));
    for identifier in ["0", "255", "0xff", "128"] {
        assert!(right().handle(&with_challenge(identifier, "0x01")).is_ok(), "{identifier}");
    }
    for identifier in ["256", "-1", "", "0x100", "+1", "01", "a", "1 "] {
        let error = failed(right(), &with_challenge(identifier, "0x01"));
        assert_eq!((error.status(), error), (0x0200, Error::Malformed("CHAP_I")), "{identifier}");
    }
}

/// Covers: CHP-13/T.
#[test]
fn binary_values_have_at_most_1024_bytes() {
    let right = || challenged(policy("secretsecret1234", Some(TARGET_SECRET)));
    let hex = |len: usize| format!("0x{}", "5a".repeat(len));
    let base64 =
        |len: usize| format!("0b{}{}", "WlpaWlpa".repeat(len / 6), "Wlpa".repeat(len % 6 / 3));
    for good in [hex(1), hex(255), hex(256), hex(1024), base64(3), base64(1023)] {
        assert!(right().handle(&with_challenge("1", &good)).is_ok(), "{}", good.len());
    }
    for bad in [hex(1025), base64(1026), hex(0), "0b".into(), "0bA".into(), "zz".into()] {
        let error = failed(right(), &with_challenge("1", &bad));
        assert_eq!((error.status(), error), (0x0200, Error::Malformed("CHAP_C")));
    }
    assert_eq!(failed(right(), &proof(&hex(1024))).status(), 0x0201);
    assert_eq!(failed(right(), &proof(&hex(1025))), Error::Malformed("CHAP_R"));
    assert_eq!(Challenge::new(0, &[]), None);
    assert_eq!(Challenge::new(0, &[0; 1025]), None);
}

/// Covers: CHP-15/T, CHP-18.
#[test]
fn reflection_is_refused() {
    let right = || challenged(policy("secretsecret1234", Some(TARGET_SECRET)));
    let ours = VECTORS[0].challenge;
    // The target's own answer to its challenge, as a second connection could have got it.
    let own = answer(Algorithm::Sha256, &challenge(1, ours[0]), TARGET_SECRET);
    let error = failed(right(), &proof(&own));
    assert_eq!((error.status(), error), (0x0201, Error::ReflectedResponse("hostuser".into())));
    for value in ours {
        for identifier in ["1", "2"] {
            let error = failed(right(), &with_challenge(identifier, value));
            let reflected = Error::ReflectedChallenge("hostuser".into());
            assert_eq!((error.status(), error), (0x0201, reflected));
        }
    }
}

/// Covers: CHP-16/S.
#[test]
fn each_direction_has_its_own_secret() {
    let one = || credentials("hostuser", "secretsecret1234");
    let hex = "0x73656372657473656372657431323334";
    for same in ["secretsecret1234", "secretsecret1234\n", hex] {
        let account = Account::new(one(), Some(credentials("diskuser", same)));
        assert_eq!(account, Err(CredentialsError::SameSecret));
    }
    assert!(Account::new(one(), Some(credentials("hostuser", TARGET_SECRET))).is_ok());
}

/// Covers: CHP-19a/S, CHP-20/S, CHP-21/S.
#[test]
fn secrets_are_whole_bytes_of_96_bits_at_least() {
    let bytes = |text: &[u8]| Secret::from_text(text).map(|secret| secret.as_bytes().to_vec());
    let right = (0_u8..16).map(|n| n * 0x11).collect::<Vec<u8>>();
    assert_eq!(bytes(b"0x00112233445566778899aabbccddeeff"), Ok(right.clone()));
    assert_eq!(bytes(b"0X00112233445566778899AABBCCDDEEFF\r\n"), Ok(right.clone()));
    assert_eq!(bytes(b"0bABEiM0RVZneImaq7zN3u/w==\n"), Ok(right));
    assert_eq!(bytes(b" secret secret \n\n"), Ok(b" secret secret \n".to_vec()));
    assert_eq!(bytes(b"\xff\0\xfe\x80secret12"), Ok(b"\xff\0\xfe\x80secret12".to_vec()));
    for zeros in [&[0; 16][..], &[0; 1024], b"0x00000000000000000000000000000000"] {
        assert_eq!(bytes(zeros), Err(SecretError::Zeros), "{zeros:?}");
    }
    assert_eq!(bytes(&[0; 11]), Err(SecretError::TooShort(11)));
    assert_eq!(bytes(b"elevenbytes"), Err(SecretError::TooShort(11)));
    assert_eq!(bytes(b"elevenbytes\n"), Err(SecretError::TooShort(11)));
    assert_eq!(bytes(b""), Err(SecretError::TooShort(0)));
    // We make none; who needs one is told of random bytes.
    assert!(SecretError::TooShort(11).to_string().contains("openssl rand -hex 16"));
    assert_eq!(bytes(b"0x0011223344556677889900"), Err(SecretError::TooShort(11)));
    assert_eq!(bytes(b"0x001122334455667788990011a"), Err(SecretError::HalfByte));
    assert_eq!(bytes(b"0x00112233445566778899zz"), Err(SecretError::Hex));
    assert_eq!(bytes(b"0bsecret-secret!"), Err(SecretError::Base64));
    assert_eq!(bytes(b"0x\xff\xff"), Err(SecretError::Hex));
    assert_eq!(bytes(&[b'a'; 1024]).map(|secret| secret.len()), Ok(1024));
    assert_eq!(bytes(&[b'a'; 1025]), Err(SecretError::TooLong));
    assert_eq!(bytes(format!("0x{}", "ab".repeat(1025)).as_bytes()), Err(SecretError::TooLong));
}

/// Covers: NEG-19/S.
#[test]
fn names_fit_a_text_value() {
    let name = |name: &str| {
        Credentials::new(name.to_owned(), Secret::new(b"secretsecret").expect("12 bytes"))
    };
    assert!(name("x").is_ok() && name(&"x".repeat(255)).is_ok() && name("J\u{fc}rgen").is_ok());
    assert_eq!(name(""), Err(CredentialsError::NameLength(0)));
    assert_eq!(name(&"x".repeat(256)), Err(CredentialsError::NameLength(256)));
    assert_eq!(name("a\0b"), Err(CredentialsError::NameCharacter));
    for word in ["Reject", "Irrelevant", "NotUnderstood"] {
        assert_eq!(name(word), Err(CredentialsError::NameReserved(word)));
        assert!(name(&word.to_lowercase()).is_ok() && name(&format!("{word}1")).is_ok());
    }
    let long = "x".repeat(256);
    let keys = Keys { name: Some(&long), ..proof(RIGHT) };
    let error = failed(challenged(policy("secretsecret1234", None)), &keys);
    assert_eq!((error.status(), error), (0x0200, Error::Malformed("CHAP_N")));
}

/// Covers: CHP-26/S.
#[test]
fn no_text_of_ours_holds_a_secret() {
    let policy = policy("secretsecret1234", Some(TARGET_SECRET));
    let exchange = challenged(policy.clone());
    let shown = format!("{policy:?} {exchange:?}");
    assert!(shown.contains("Secret(..)") && shown.contains("hostuser"));
    for secret in ["secretsecret1234", TARGET_SECRET, "115, 101, 99"] {
        assert!(!shown.contains(secret), "{shown}");
    }
    for error in [failed(exchange, &proof("0x00")), Error::Name("hostuser".into())] {
        assert!(!format!("{error} {error:?}").contains("secretsecret"));
    }
}
