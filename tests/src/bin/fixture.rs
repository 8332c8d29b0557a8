//! The conformance fixture as a process: `fixture [PORT] [--eras dual|legacy|modern]` prints its URL and serves until its
//! standard input ends, so that it never outlives the test that started it.

use lockgate_tests::fixture::{self, Eras};
use tokio::{io::AsyncReadExt, net::TcpListener};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let (mut port, mut eras) = (0, Eras::default());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--eras" {
            eras = arguments.next().unwrap_or_default().parse().map_err(std::io::Error::other)?;
        } else {
            port = argument.parse().map_err(|_| std::io::Error::other(format!("{argument} is not a port")))?;
        }
    }
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!("http://{}/mcp", listener.local_addr()?);
    let parent = async {
        let (mut input, mut buffer) = (tokio::io::stdin(), [0; 64]);
        while input.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
    };
    tokio::select! {
        result = fixture::serve(listener, eras) => result,
        () = parent => Ok(()),
    }
}
