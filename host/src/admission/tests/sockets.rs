//! The meter on a real socket: what the kernel holds for a client that does not read, and that reading is seen.

use super::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

async fn pair() -> (Metered, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpSocket::new_v4().unwrap();
    client.set_recv_buffer_size(4096).unwrap();
    let (client, accepted) = tokio::join!(client.connect(listener.local_addr().unwrap()), listener.accept());
    (Metered::new(accepted.unwrap().0), client.unwrap())
}

/// Writes until the kernel takes no more; answers how much it took.
async fn stuff(socket: &mut Metered) -> usize {
    let chunk = vec![b'x'; 1 << 20];
    let mut taken = 0;
    while let Ok(n) = tokio::time::timeout(Duration::from_millis(100), socket.write(&chunk)).await {
        taken += n.unwrap();
    }
    taken
}

#[tokio::test]
async fn the_kernel_swallows_little_for_a_client_that_reads_nothing() {
    let (mut socket, _client) = pair().await;
    let taken = stuff(&mut socket).await;
    println!("the kernel took {taken} bytes");
    if cfg!(target_os = "linux") {
        assert!(taken <= 64 * 1024, "{taken}");
    }
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn written_is_not_drained_and_reading_is_seen_without_anybody_asking() {
    let ledger = ledger();
    let (mut socket, mut client) = pair().await;
    let meter = socket.meter().clone();
    stuff(&mut socket).await;
    meter.give(0, Some(ledger.owe(10)));
    socket.flush().await.unwrap();
    meter.look(Instant::now());
    assert_eq!(ledger.standing().owed_frames, 1);
    let reading = tokio::spawn(async move {
        let mut buffer = vec![0; 1 << 16];
        while client.read(&mut buffer).await.unwrap() > 0 {}
    });
    // The connection's own task, with nothing to do but to watch.
    let mut watch = Watch::new(meter.clone(), LIMITS.drain_window, LIMITS.teardown_after);
    let drained = async {
        while meter.owing_since().is_some() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        torn = std::future::poll_fn(|cx| watch.poll(cx)) => panic!("{torn:?}"),
        () = drained => {}
    }
    assert_eq!(ledger.standing().owed_frames, 0);
    drop(socket);
    reading.await.unwrap();
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn a_client_that_never_reads_is_judged_and_then_torn_down() {
    let limits = Limits { drain_window: Duration::from_millis(50), teardown_after: Duration::from_millis(150), ..LIMITS };
    let totals = Arc::new(Totals::default());
    let ledger = Ledger::new(limits, "s".into(), totals.clone());
    let (mut socket, _client) = pair().await;
    let meter = socket.meter().clone();
    meter.give(0, Some(ledger.owe(10)));
    stuff(&mut socket).await;
    let mut watch = Watch::new(meter, limits.drain_window, limits.teardown_after);
    let torn = std::future::poll_fn(|cx| watch.poll(cx)).await;
    assert!(torn.still_for >= limits.teardown_after, "{torn:?}");
    assert!(ledger.is_half_open());
    assert_eq!((totals.half_open.load(Relaxed), totals.torn_down.load(Relaxed)), (1, 1));
    drop(socket);
    assert!(!ledger.is_half_open());
    assert_eq!((totals.half_open.load(Relaxed), totals.owed_frames.load(Relaxed), totals.owed_bytes.load(Relaxed)), (0, 0, 0));
}
