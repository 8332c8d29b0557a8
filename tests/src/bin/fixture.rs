//! The conformance fixture as a process: `fixture [PORT]` prints its URL and serves until its standard input ends, so that
//! it never outlives the test that started it.

use lockgate_tests::fixture;
use tokio::{io::AsyncReadExt, net::TcpListener};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let port: u16 = match std::env::args().nth(1) {
        None => 0,
        Some(port) => port.parse().map_err(|_| std::io::Error::other(format!("{port} is not a port")))?,
    };
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!("http://{}/mcp", listener.local_addr()?);
    let parent = async {
        let (mut input, mut buffer) = (tokio::io::stdin(), [0; 64]);
        while input.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
    };
    tokio::select! {
        result = fixture::serve(listener) => result,
        () = parent => Ok(()),
    }
}
