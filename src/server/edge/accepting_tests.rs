//! Clients that send nothing, send an incomplete request, or read nothing, and the clients that connect meanwhile.

use super::*;
use crate::server::edge::connection_slots::GRACE;
use axum::routing::get;
use std::net::Ipv4Addr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const LARGE: usize = 8 << 20;

/// Serves a small and a large page to at most `n` concurrent connections while `client` runs.
async fn with_places<T>(n: usize, client: impl AsyncFnOnce(SocketAddr) -> T) -> T {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new()
        .route("/", get(|| async { "here" }))
        .route("/large", get(|| async { Bytes::from_static(&[b'x'; LARGE]) }));
    let stop = CancellationToken::new();
    let places = ConnectionSlots::new(n, 0, Vec::new());
    let accepting = accept(Entrance { listener, tls: None, places }, router, stop.clone());
    let client = async {
        let result = client(address).await;
        stop.cancel();
        result
    };
    tokio::join!(accepting, client).1
}

async fn say(address: SocketAddr, said: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(said.as_bytes()).await.unwrap();
    stream
}

async fn ask(address: SocketAddr) -> String {
    let mut stream = say(address, "GET / HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n").await;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test(start_paused = true)]
async fn a_client_that_says_nothing_or_half_of_it_is_given_up() {
    with_places(1, async |address| {
        for said in ["", "GET / HTTP/1.1\r\nhost: he"] {
            let mut stream = say(address, said).await;
            let mut answer = Vec::new();
            let ended = timeout(10 * HEAD, stream.read_to_end(&mut answer)).await;
            ended.expect("it is closed").unwrap();
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_head_that_trickles_in_is_given_up_as_one_that_does_not_come() {
    with_places(1, async |address| {
        let begun = Instant::now();
        let mut stream = say(address, "GET / HTTP/1.1\r\n").await;
        let trickled = async {
            while stream.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        timeout(3 * HEAD, trickled).await.expect("it is closed");
        assert!(begun.elapsed() <= HEAD + Duration::from_secs(3), "{:?}", begun.elapsed());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn who_finds_no_place_gets_that_of_the_oldest_idle_one() {
    with_places(2, async |address| {
        let begun = Instant::now();
        let mut silent = say(address, "").await;
        let mut half = say(address, "GET / HT").await;
        let answer = timeout(10 * HEAD, ask(address)).await.expect("it is answered");
        assert!(answer.ends_with("here"), "{answer}");
        assert!(begun.elapsed() < 4 * GRACE, "{:?}", begun.elapsed());
        assert_eq!(silent.read(&mut [0]).await.unwrap_or(0), 0, "the oldest went");
        let still_there = timeout(GRACE, half.read(&mut [0])).await.is_err();
        assert!(still_there, "one place was enough for both");
    })
    .await;
}

#[tokio::test]
async fn hundreds_that_never_read_keep_nobody_waiting() {
    with_places(64, async |address| {
        let mut hostile = Vec::new();
        for _ in 0..80 {
            hostile.push(say(address, &"GET /large HTTP/1.1\r\nhost: here\r\n\r\n".repeat(20)).await);
        }
        for _ in 0..10 {
            let answer = timeout(Duration::from_secs(20), ask(address)).await.expect("it is answered");
            assert!(answer.ends_with("here"), "{answer}");
        }
    })
    .await;
}

#[test]
fn the_address_with_most_that_wait_loses_one() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut waiting = VecDeque::new();
        for last in [1, 2, 2, 3] {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let peer = (Ipv4Addr::new(192, 0, 2, last), waiting.len() as u16).into();
            waiting.push_back(PendingConnection { stream, peer, since: Instant::now() });
        }
        push_out(&mut waiting);
        let left: Vec<u16> = waiting.iter().map(|one| one.peer.port()).collect();
        assert_eq!(left, [0, 2, 3]);
    });
}
