//! The functions that the shim's stand in front of, and the macro that declares the shim's.
//!
//! ```text
//!   program --read--> shim --next--> other shims, sanitizers --next--> the C library
//!                       |
//!                       +-- until the constructor ran: the kernel
//! ```
//!
//! The constructor finds the next one by `dlsym(RTLD_NEXT)`; a call never does: `dlsym`
//! takes the loader's lock and may allocate, and a call may come from a signal handler or from
//! within an allocator that starts up. A call before the constructor goes to the kernel at once.
//!
//! # Invariants
//! - A call does what the next function does: same arguments, same answer, same `errno`.
//! - No value with a destructor lives across the next function. A thread that is cancelled in it is
//!   unwound through the shim's frame by force; hence also the ABI, `C-unwind`.

use core::{
    marker::PhantomData,
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

use libc::c_void;

/// The function of one name that comes after the shim's; `F` is its type.
pub(crate) struct Next<F> {
    /// Ends with a zero.
    name: &'static str,
    at: AtomicPtr<c_void>,
    of: PhantomData<F>,
}

impl<F: Copy> Next<F> {
    /// # Safety
    /// `F` is a function pointer, of the type that the C library's function `name` has; the name
    /// ends with a zero.
    pub(crate) const unsafe fn new(name: &'static str) -> Self {
        assert!(size_of::<F>() == size_of::<*mut c_void>(), "not a function pointer");
        Self { name, at: AtomicPtr::new(ptr::null_mut()), of: PhantomData }
    }

    /// Finds the function. Not in a signal handler.
    pub(crate) fn find(&self) {
        // SAFETY: the name ends with a zero (`new`). The handle means what comes after the caller's
        // library, which is the shim.
        let at = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr().cast()) };
        self.at.store(at, Ordering::Release);
    }

    /// The function, if it was found.
    #[inline]
    pub(crate) fn get(&self) -> Option<F> {
        let at = self.at.load(Ordering::Acquire);
        // SAFETY: `at` is the address of the function, and `F` the pointer to it (`new`); it is
        // not null, and a library that is loaded for RTLD_NEXT stays.
        (!at.is_null()).then(|| unsafe { core::mem::transmute_copy(&at) })
    }
}

/// Writes functions of the C library's names and types: each does `before`, then calls the next
/// one, or `raw` where there is none yet, then does `after` with its answer, whose type has one
/// word. Also `find`, which looks all of the next ones up. Several names are of functions
/// that do the same.
///
/// Arguments after a semicolon are those that C passes in `...`. Stable Rust cannot define such a
/// function. On the machines that this crate builds for, System V x86-64 and AAPCS64, a caller
/// passes these in the same registers as arguments that are declared; one that was not passed is
/// whatever the register holds, and goes to the next function, which knows when not to look.
macro_rules! calls {
    ($(fn [$($name:ident)+] $arguments:tt -> $out:tt $body:tt)*) => {
        #[expect(non_upper_case_globals, reason = "the C library's names")]
        mod next {
            use super::*;
            $($(crate::next::calls! { @next $name $arguments $out })+)*
        }

        /// Looks the next functions up.
        pub(super) fn find() {
            $($(next::$name.find();)+)*
        }

        $($(crate::next::calls! { @call $name $arguments $out $body })+)*
    };
    (@next $name:ident
        ($($arg:ident: $type:ty),* $(; $dots:tt $($more:ident: $kind:ty),+)?)
        $out:tt
    ) => {
        pub(super) static $name: crate::next::Next<
            unsafe extern "C-unwind" fn($($type),* $(, $dots)?) -> $out
        > = {
            // SAFETY: the type is that of C's declaration of this name.
            unsafe { crate::next::Next::new(concat!(stringify!($name), "\0")) }
        };
    };
    (@call $name:ident
        ($($arg:ident: $type:ty),* $(; $dots:tt $($more:ident: $kind:ty),+)?)
        $out:tt
        {
            $(before: $before:expr,)?
            raw: $raw:expr,
            $(after($got:ident): $after:expr,)?
        }
    ) => {
        #[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C-unwind" fn $name(
            $($arg: $type,)* $($($more: $kind,)+)?
        ) -> $out {
            $($before;)?
            // SAFETY: the program's own call with its own arguments, which keep the contract
            // of this function as far as the program does. The kernel's call is the one that
            // the C library would make of them.
            let answer = unsafe {
                match next::$name.get() {
                    Some(next) => next($($arg,)* $($($more,)+)?),
                    None => $raw,
                }
            };
            $(
                let $got = answer;
                $after;
            )?
            answer
        }
    };
}

pub(crate) use calls;
