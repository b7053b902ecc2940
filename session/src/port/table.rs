//! Macros that turn a table of operations into a trait, a caller and an answerer.

/// How an argument is passed on: a borrowed one by reference.
macro_rules! given {
    ($name:ident) => {
        $name
    };
    ($name:ident, $borrowed:ty) => {
        &$name
    };
}

/// The type of an argument in a signature.
macro_rules! asked {
    ($owned:ty) => {
        $owned
    };
    ($owned:ty, $borrowed:ty) => {
        $borrowed
    };
}

/// The trait, its implementation by [`Remote`](super::Remote), the function that answers requests,
/// and the table of operation names.
macro_rules! operations {
    ($(#[$about:meta])* $trait:ident, $answer:ident, $names:ident;
     $($number:literal $name:ident($($argument:ident: $owned:ty $(as $borrowed:ty)?),*) -> $result:ty;)*) => {
        $(#[$about])*
        #[allow(
            missing_docs, clippy::missing_errors_doc, reason = "each is described at the function of the same name"
        )]
        pub trait $trait: Send + Sync {
            $(fn $name(&self $(, $argument: asked!($owned $(, $borrowed)?))*) -> Result<$result>;)*
        }

        impl<C: Call> $trait for Remote<C> {
            $(fn $name(&self $(, $argument: asked!($owned $(, $borrowed)?))*) -> Result<$result> {
                volume::ranked::assert_only_turns();
                let answer = self.0.call($number, &encode(&($($argument,)*)))?;
                decode_answer::<Result<$result>>(&answer)?
            })*
        }

        /// Carries out a request of a [`Remote`] and returns the answer, or `None` when this table
        /// has no such operation. Arguments that cannot be decoded, or that no correct client
        /// sends, get an error as the answer.
        pub fn $answer(port: &dyn $trait, operation: u16, arguments: &[u8]) -> Option<Vec<u8>> {
            // What the journal takes for this request goes back with its answer.
            Carried::take();
            let mut answer = match operation {
                $($number => match decode::<($($owned,)*)>(arguments).and_then(|all| Sound::check(&all).map(|()| all)) {
                    Ok(($($argument,)*)) => encode(&port.$name($(given!($argument $(, $borrowed)?)),*)),
                    Err(error) => encode(&Err::<(), Error>(error)),
                },)*
                _ => return None,
            };
            let journal = Carried::take();
            if journal != Carried::default() {
                answer.extend_from_slice(&journal.to_bytes());
            }
            Some(answer)
        }

        /// The number and the name of every operation.
        pub const $names: &[(u16, &str)] = &[$(($number, stringify!($name))),*];
    };
}

/// Implements the trait for a type that has functions of these names and signatures.
macro_rules! inherent {
    ($type:ident, $trait:ident;
     $($number:literal $name:ident($($argument:ident: $owned:ty $(as $borrowed:ty)?),*) -> $result:ty;)*) => {
        impl $trait for $type {
            $(fn $name(&self $(, $argument: asked!($owned $(, $borrowed)?))*) -> Result<$result> {
                $type::$name(self $(, $argument)*)
            })*
        }
    };
}
