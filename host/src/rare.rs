//! What a session may come to have and most never do: made when it is first needed, so that the others do not hold it.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A value behind a short lock, which is not there before it is first changed.
pub struct Rare<T>(Mutex<Option<Box<T>>>);

impl<T> Rare<T> {
    fn lock(&self) -> MutexGuard<'_, Option<Box<T>>> {
        // Nothing panics under these locks; a poisoned value would still be whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at it, where it is there. Must not block.
    pub fn look<R>(&self, look: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.lock().as_deref_mut().map(look)
    }

    /// Changes it, and makes it first where need be. Must not block.
    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R
    where
        T: Default,
    {
        change(self.lock().get_or_insert_default())
    }
}

impl<T> Default for Rare<T> {
    fn default() -> Self {
        Rare(Mutex::new(None))
    }
}

impl<T: fmt::Debug> fmt::Debug for Rare<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rare").field(&self.0).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_not_there_before_it_is_changed() {
        let rare = Rare::<Vec<u8>>::default();
        assert_eq!(rare.look(|v| v.len()), None);
        rare.change(|v| v.push(1));
        assert_eq!(rare.look(|v| v.len()), Some(1));
    }
}
