//! Shipped policy: how things are called when a session has several backends, and nothing else.
//!
//! With one backend every name stays as it is. With several:
//!
//! * Tools and prompts are called `<slug>__<name>`. The slug stands for the backend and is its name, where that is short and cannot
//!   disturb the split at the first `__`; otherwise a shortened form with a hash. A name that is too long or has characters
//!   outside of `A-Z a-z 0-9 _ -` is shortened and cleaned, with a hash: `<slug>__<start>--<hash>`. See [`names`].
//! * Resources and resource templates keep their URI. One whose URI does not lead back to its backend by itself (`shared`) is called
//!   `lockgate://<slug>/<uri>`, with the URI unchanged and unescaped after the slash. See [`uris`].
//!
//! The inverse answers where it is sure: the slug is that of exactly one backend, and the name found is published as the name
//! asked for. A shortened name cannot be read backwards; the host knows the ones that it published.
//! The same backends and names give the same public names in every process and at every start.

pub mod names;
pub mod uris;

use lockgate_sdk::{Failure, ItemHead, Kind, Namespace, Session, Target, Verdict, export};

struct BySlug;

impl Namespace for BySlug {
    fn expose(s: &Session, kind: Kind, items: &[ItemHead]) -> Result<Vec<Verdict>, Failure> {
        if s.backends().len() < 2 {
            return Ok(vec![Verdict::Keep; items.len()]);
        }
        let verdict = |item: &ItemHead| match kind {
            Kind::Tool | Kind::Prompt => Verdict::Rename(names::public(&item.backend, &item.name)),
            Kind::Resource | Kind::ResourceTemplate if uris::stands_alone(&item.name, item.shared) => Verdict::Keep,
            Kind::Resource | Kind::ResourceTemplate => Verdict::Rename(uris::public(&item.backend, &item.name)),
        };
        Ok(items.iter().map(verdict).collect())
    }

    fn resolve(s: &Session, kind: Kind, public: &str) -> Result<Option<Target>, Failure> {
        let backends: Vec<String> = s.backends().into_iter().map(|b| b.name).collect();
        if let [only] = &*backends {
            return Ok(Some(Target { backend: only.clone(), name: public.to_owned() }));
        }
        let found = match kind {
            Kind::Tool | Kind::Prompt => names::resolve(&backends, public),
            Kind::Resource | Kind::ResourceTemplate => uris::resolve(&backends, public),
        };
        Ok(found.map(|(backend, name)| Target { backend: backend.to_owned(), name: name.to_owned() }))
    }
}

export!(BySlug: namespace);
