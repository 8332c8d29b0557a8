//! `lockgate://<slug>/<uri>` and back, for resources and resource templates whose URI does not lead to their backend by itself.
//! The URI follows unchanged, so a template in this form is a template still, and what a client makes of it resolves like any URI.

use crate::names::{of_slug, slug};

/// What public URIs of ours begin with.
const SCHEME: &str = "lockgate://";

/// Whether a URI is published as it is. A backend that uses our scheme could be mistaken for another, so its URIs never are.
pub fn stands_alone(uri: &str, shared: bool) -> bool {
    !shared && !uri.starts_with(SCHEME)
}

/// The public form of a URI.
pub fn public(backend: &str, uri: &str) -> String {
    format!("{SCHEME}{}/{uri}", slug(backend))
}

/// The backend and its own URI in a public one of this form.
pub fn resolve<'a>(backends: &'a [String], public: &'a str) -> Option<(&'a str, &'a str)> {
    let (slug, uri) = public.strip_prefix(SCHEME)?.split_once('/')?;
    Some((of_slug(backends, slug)?, uri)).filter(|_| !uri.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uri_goes_in_and_comes_out_unchanged() {
        let all = vec!["files".to_owned(), "a__b".to_owned()];
        for uri in ["file:///a/b?c#d", "x", "note://{id}{?q*}", "lockgate://files/x", "/", "a b\n"] {
            for backend in &all {
                let public = public(backend, uri);
                assert_eq!(resolve(&all, &public), Some((&**backend, uri)), "{public}");
            }
        }
        assert_eq!(public("files", "note://{id}"), "lockgate://files/note://{id}");
    }

    #[test]
    fn what_is_not_of_this_form_is_not_ours_to_resolve() {
        let all = vec!["files".to_owned(), "b".to_owned()];
        for uri in ["file:///x", "lockgate://other/x", "lockgate://files", "lockgate://files/", "lockgate:///x", "LOCKGATE://files/x", ""] {
            assert_eq!(resolve(&all, uri), None, "{uri}");
        }
    }

    #[test]
    fn a_backend_cannot_publish_a_uri_that_names_another() {
        assert!(stands_alone("file:///x", false));
        assert!(!stands_alone("file:///x", true));
        assert!(!stands_alone("lockgate://other/file:///x", false));
    }
}
