//! The session that is lent right now, so that a panic can say through it what happened: a component has no standard error, and without this
//! the text of a panic is lost. Used by [`export!`](crate::export) alone; the pointer never leaves this file.

#[cfg(any(target_arch = "wasm32", test))]
mod pointer {
    use std::cell::Cell;
    use std::ptr::NonNull;

    /// A pointer that is set only while what it points to is borrowed.
    pub struct Lent<T>(Cell<Option<NonNull<T>>>);

    /// Puts back what was there before, also when a panic unwinds.
    struct Until<'a, T>(&'a Lent<T>, Option<NonNull<T>>);

    impl<T> Lent<T> {
        pub const fn nothing() -> Self {
            Lent(Cell::new(None))
        }

        /// Runs `f` with `value` lent.
        pub fn during<R>(&self, value: &T, f: impl FnOnce() -> R) -> R {
            let _until = Until(self, self.0.replace(Some(NonNull::from(value))));
            f()
        }

        /// Shows what is lent now, if anything is.
        pub fn with(&self, f: impl FnOnce(&T)) {
            if let Some(value) = self.0.get() {
                // SAFETY: the pointer was made from a reference by `during`, which is still running: it takes the pointer away before it returns
                // or unwinds, and the reference outlives it. Only shared references to the value exist meanwhile. `Cell` keeps this type to
                // one thread, so `during` cannot end while `f` runs, and `f` gets a borrow that cannot leave it.
                f(unsafe { value.as_ref() });
            }
        }
    }

    impl<T> Drop for Until<'_, T> {
        fn drop(&mut self) {
            self.0.0.set(self.1);
        }
    }
}

/// Runs a hook. A panic in it is logged through the session that was lent for it.
#[cfg(target_arch = "wasm32")]
pub fn during<R>(s: &crate::Session, hook: impl FnOnce() -> R) -> R {
    use std::sync::Once;

    thread_local! {
        static LENT: pointer::Lent<crate::Session> = const { pointer::Lent::nothing() };
    }
    static INSTALLED: Once = Once::new();
    /// The gateway cuts its lines shorter than this. An argument of a megabyte would end the call before the line is written.
    const MOST: usize = 2 << 10;

    INSTALLED.call_once(|| {
        std::panic::set_hook(Box::new(|panic| {
            // Place and message stand on two lines; a line of the log is one.
            let mut text = panic.to_string().replace('\n', " ");
            text.truncate(text.floor_char_boundary(MOST));
            LENT.with(|lent| lent.with(|s| s.log(crate::Level::Error, &text)));
        }));
    });
    LENT.with(|lent| lent.during(s, hook))
}

#[cfg(test)]
mod tests {
    use super::pointer::Lent;

    fn seen(lent: &Lent<String>) -> Option<String> {
        let mut seen = None;
        lent.with(|s| seen = Some(s.clone()));
        seen
    }

    #[test]
    fn what_is_lent_is_seen_only_while_it_is_lent() {
        let lent = Lent::nothing();
        assert_eq!(seen(&lent), None);
        lent.during(&"a".to_owned(), || {
            assert_eq!(seen(&lent).as_deref(), Some("a"));
            lent.during(&"b".to_owned(), || assert_eq!(seen(&lent).as_deref(), Some("b")));
            assert_eq!(seen(&lent).as_deref(), Some("a"));
        });
        assert_eq!(seen(&lent), None);
    }

    #[test]
    fn after_a_panic_nothing_is_lent() {
        let lent = Lent::nothing();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| lent.during(&"a".to_owned(), || panic!("on purpose"))));
        assert!(panicked.is_err());
        assert_eq!(seen(&lent), None);
    }
}
