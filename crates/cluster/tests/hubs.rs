//! What hubs publish to each other, on a real nats-server.

use antiphon_cluster::testing::NatsServer;
use antiphon_cluster::{Cluster, ClusterConfig, MAX_NEWS_BYTES, PeerNews, Sessions};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

const TEST_TIMEOUT: Duration = Duration::from_secs(20);

struct Hub {
    cluster: Cluster,
    _stop: DropGuard,
}

impl Hub {
    async fn join(server: &NatsServer, name: &str) -> Self {
        let config = ClusterConfig { servers: vec![server.url()], name: name.into(), ..ClusterConfig::default() };
        let (sessions, stop): (Sessions, _) = (Arc::new(|| (0, 1, false)), CancellationToken::new());
        let cluster = Cluster::join(&config, "1", sessions, &TaskTracker::new(), stop.clone()).await.expect("it joins");
        Self { cluster, _stop: stop.drop_guard() }
    }
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let reached = async {
        while !is_so() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(TEST_TIMEOUT, reached).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// What arrives next: news, or the number of those that were missed.
async fn next(news: &mut broadcast::Receiver<PeerNews>) -> Result<Vec<u8>, u64> {
    match timeout(TEST_TIMEOUT, news.recv()).await.expect("something arrives").expect("all of it") {
        PeerNews::Update(update) => Ok(update.to_vec()),
        PeerNews::Missed(n) => Err(n),
    }
}

#[tokio::test]
async fn news_are_reported_while_a_client_watches_and_what_is_too_long_is_counted() {
    let server = NatsServer::start().await.expect("a server");
    let one = Hub::join(&server, "one").await;
    let other = Hub::join(&server, "other").await;
    let mut news = one.cluster.news();
    other.cluster.publish_news(b"unheard"[..].into());
    assert!(!other.cluster.is_watched(), "no client watches");

    let first = one.cluster.watch().await;
    let second = one.cluster.watch().await;
    until("the other knows", || other.cluster.is_watched()).await;
    assert!(!one.cluster.is_watched(), "a hub's own watchers do not make it publish");
    other.cluster.publish_news(b"1"[..].into());
    assert_eq!(next(&mut news).await, Ok(b"1".to_vec()));
    other.cluster.publish_news(vec![0; MAX_NEWS_BYTES + 1].into());
    other.cluster.publish_news(vec![7; MAX_NEWS_BYTES].into());
    assert_eq!(next(&mut news).await, Ok(vec![7; MAX_NEWS_BYTES]));
    assert_eq!(other.cluster.overview().too_long, 1);

    drop(first);
    other.cluster.publish_news(b"2"[..].into());
    assert_eq!(next(&mut news).await, Ok(b"2".to_vec()), "one of the two still watches");
    drop(second);
    until("the other knows", || !other.cluster.is_watched()).await;
    let _again = one.cluster.watch().await;
    until("the other knows", || other.cluster.is_watched()).await;
    other.cluster.publish_news(b"3"[..].into());
    assert_eq!(next(&mut news).await, Ok(b"3".to_vec()), "what was not published was not missed");
}

#[tokio::test]
async fn lost_news_are_counted_and_so_is_a_lost_connection_said() {
    let mut server = NatsServer::start().await.expect("a server");
    let one = Hub::join(&server, "one").await;
    let other = Hub::join(&server, "other").await;
    let mut news = one.cluster.news();
    let _watching = one.cluster.watch().await;
    other.cluster.reply_with(Arc::new(|_| Box::pin(std::future::ready(Some(b"here".to_vec())))));
    until("the other knows", || other.cluster.is_watched()).await;
    // More than wait for one watcher.
    for n in 0..1_000_u32 {
        other.cluster.publish_news(n.to_be_bytes().to_vec().into());
    }
    let last = 999_u32.to_be_bytes();
    let mut n_told = 0;
    let mut n_missed = 0;
    loop {
        match timeout(TEST_TIMEOUT, news.recv()).await.expect("something arrives") {
            Ok(PeerNews::Update(update)) => {
                n_told += 1;
                if update[..] == last {
                    break;
                }
                // Slower than they arrive.
                sleep(Duration::from_millis(1)).await;
            }
            Ok(PeerNews::Missed(n)) | Err(broadcast::error::RecvError::Lagged(n)) => n_missed += n,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(n_told + n_missed, 1_000, "{n_missed} missed");

    server.kill().await;
    until("the connection is lost", || !one.cluster.overview().connected).await;
    server.restart().await.expect("it is back");
    assert_eq!(next(&mut news).await, Err(0), "nobody knows how many");
    // What it asks now, it asks after it has subscribed again: nothing is lost between the reply and the next news.
    let asked = async {
        let soon = Duration::from_millis(200);
        while !one.cluster.ask_peers(b"?", soon).await.iter().any(|peer| peer.reply.is_some()) {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(TEST_TIMEOUT, asked).await.expect("both are back");
    until("the other knows", || other.cluster.is_watched()).await;
    other.cluster.publish_news(b"again"[..].into());
    assert_eq!(next(&mut news).await, Ok(b"again".to_vec()));
}
