//! The traits that a policy implements, one per hook family of the contract. Their functions have no `self`: a policy has no state but what
//! a session remembers for it.

use crate::{AliasEntry, Decision, Failure, ItemHead, Kind, Session, Target, Verdict, Welcome};

/// Hook family: names that stand for other names. Exported as `alias`.
///
/// A whole policy: `/name` stands for the tool `name` of the backend that the operator calls the main one.
///
/// ```
/// use lockgate_sdk::{Alias, Failure, Kind, Session, Target, export};
///
/// #[derive(serde::Deserialize)]
/// #[serde(deny_unknown_fields)]
/// struct Setting {
///     main: String,
/// }
///
/// struct Short;
///
/// impl Alias for Short {
///     fn resolve(s: &Session, kind: Kind, public: &str) -> Result<Option<Target>, Failure> {
///         let setting: Setting = s.setting_as()?;
///         match (kind, public.strip_prefix('/')) {
///             (Kind::Tool, Some(name)) if s.has_backend(&setting.main) => Ok(Some(Target::new(setting.main, name))),
///             _ => Ok(None),
///         }
///     }
/// }
///
/// export!(Short: alias);
/// # fn main() {}
/// ```
pub trait Alias {
    /// What a public name stands for; `None`: not an alias of this policy.
    ///
    /// Asked when a client uses a public name that is not in the list that was published to it.
    fn resolve(s: &Session, kind: Kind, public: &str) -> Result<Option<Target>, Failure>;

    /// The aliases that are to be listed, in place of the names of the items that they stand for. None by default: they work, unlisted.
    ///
    /// Asked when a list is built. Targets must be backends of the session, and `resolve` must give the same answer.
    fn publish(s: &Session, kind: Kind) -> Result<Vec<AliasEntry>, Failure> {
        let _ = (s, kind);
        Ok(Vec::new())
    }
}

/// Hook family: which backend serves a call, and whether it is served. Exported as `router`.
///
/// A whole policy: calls to `search` go to the backend of the caller's region, which is a claim of the principal; who has none is told why
/// nothing is found. In `Cargo.toml`: `[package.metadata.lockgate]`, `capabilities = { claims = ["region"] }`.
///
/// ```
/// use lockgate_sdk::{Decision, Failure, Kind, Router, Session, Target, export};
///
/// fn decide(region: Option<&str>, has_backend: impl Fn(&str) -> bool, target: &Target) -> Decision {
///     if target.backend != "search" {
///         return Decision::Pass;
///     }
///     match region.map(|r| format!("search-{r}")) {
///         Some(backend) if has_backend(&backend) => Decision::Route(Target::new(backend, &target.name)),
///         Some(_) => Decision::Pass,
///         None => Decision::Refuse("your account has no region".into()),
///     }
/// }
///
/// struct ByRegion;
///
/// impl Router for ByRegion {
///     fn resolve(s: &Session, _: Kind, _: &str, target: &Target) -> Result<Decision, Failure> {
///         let region: Option<String> = s.claim_as("region")?;
///         Ok(decide(region.as_deref(), |name| s.has_backend(name), target))
///     }
/// }
///
/// export!(ByRegion: router);
/// # fn main() {}
/// ```
pub trait Router {
    /// Where the use of a public name goes. `target`: where it goes if no router says otherwise.
    ///
    /// Asked the first time that a name is used after the lists or the policies changed, and the answer is kept with the name; with the capability
    /// `every-call`, about each use. A target's backend must be a backend of the session.
    fn resolve(s: &Session, kind: Kind, public: &str, target: &Target) -> Result<Decision, Failure>;
}

/// Hook family: how things are called and what is shown. Exported as `namespace`.
///
/// A whole policy: on this gateway the tools of the backend `legacy` are hidden, and every other one is called
/// `<prefix><backend>-<tool>`, with the prefix from the operator's configuration.
///
/// ```
/// use lockgate_sdk::{Failure, ItemHead, Kind, Namespace, Session, Target, Verdict, export};
///
/// #[derive(serde::Deserialize)]
/// #[serde(deny_unknown_fields)]
/// struct Setting {
///     prefix: String,
/// }
///
/// struct Prefixed;
///
/// impl Namespace for Prefixed {
///     fn expose(s: &Session, kind: Kind, items: &[ItemHead]) -> Result<Vec<Verdict>, Failure> {
///         let setting: Setting = s.setting_as()?;
///         let verdict = |item: &ItemHead| match kind {
///             Kind::Tool if item.backend == "legacy" => Verdict::Hide,
///             Kind::Tool => Verdict::Rename(format!("{}{}-{}", setting.prefix, item.backend, item.name)),
///             _ => Verdict::Keep,
///         };
///         Ok(items.iter().map(verdict).collect())
///     }
///
///     fn resolve(s: &Session, kind: Kind, public: &str) -> Result<Option<Target>, Failure> {
///         let setting: Setting = s.setting_as()?;
///         let Some(rest) = public.strip_prefix(&setting.prefix) else { return Ok(None) };
///         let target = |backend: String| {
///             let name = rest.strip_prefix(&backend)?.strip_prefix('-')?.to_owned();
///             Some(Target { backend, name })
///         };
///         Ok(match kind {
///             Kind::Tool => s.backends().into_iter().find_map(|b| target(b.name)),
///             _ => None,
///         })
///     }
/// }
///
/// export!(Prefixed: namespace);
/// # fn main() {}
/// ```
pub trait Namespace {
    /// One verdict for each item, in the same order, each following from the session and that item alone.
    ///
    /// Asked when a list is built, and about a single item to check an answer of `resolve`.
    fn expose(s: &Session, kind: Kind, items: &[ItemHead]) -> Result<Vec<Verdict>, Failure>;

    /// The item that `expose` would publish under this name; `None`: cannot tell, or the name is not changed by this policy.
    /// That is the default, right for a policy that only keeps and hides.
    ///
    /// Asked when a client uses a public name that is not in the list that was published to it and is not an alias.
    fn resolve(s: &Session, kind: Kind, public: &str) -> Result<Option<Target>, Failure> {
        let _ = (s, kind, public);
        Ok(None)
    }
}

/// Hook family: the life of a session. Exported as `lifecycle`.
///
/// A whole policy: who is in the plan `trial` may open sessions only while the trial lasts, and each session keeps when it began. In
/// `Cargo.toml`: `capabilities = { claims = ["plan", "trial_ends"], clock = true }`.
///
/// ```
/// use std::time::{Duration, SystemTime};
///
/// use lockgate_sdk::{Failure, Lifecycle, Session, Welcome, clock, export};
///
/// fn decide(plan: Option<&str>, ends: Option<u64>, now: SystemTime) -> Welcome {
///     let ended = |at: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(at) < now;
///     match (plan, ends) {
///         (Some("trial"), Some(at)) if ended(at) => Welcome::Refuse("your trial has ended".into()),
///         _ => Welcome::Accept,
///     }
/// }
///
/// struct Trials;
///
/// impl Lifecycle for Trials {
///     fn opened(s: &Session) -> Result<Welcome, Failure> {
///         s.remember_as("opened", &clock::now())?;
///         Ok(decide(s.claim_as::<String>("plan")?.as_deref(), s.claim_as("trial_ends")?, clock::now()))
///     }
/// }
///
/// export!(Trials: lifecycle);
/// # fn main() {}
/// ```
pub trait Lifecycle {
    /// A session is about to open. A refusal's reason is what the client's `initialize` is answered with. It may, by default.
    ///
    /// Asked once per session; not for sessions that were open when this policy was swapped in.
    fn opened(s: &Session) -> Result<Welcome, Failure> {
        let _ = s;
        Ok(Welcome::Accept)
    }

    /// A session is closing; what was remembered goes with it. Nothing by default.
    ///
    /// Asked once per session that was accepted, unless the gateway is killed. A failure is only logged.
    fn closing(s: &Session) -> Result<(), Failure> {
        let _ = s;
        Ok(())
    }
}
