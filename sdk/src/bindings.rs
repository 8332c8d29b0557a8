//! What `wit-bindgen` makes of `wit/`: one module per hook world, all sharing the types of `base`; and of WASI the few functions that a
//! policy can be granted. A component exports a hook only where its export macro is used, and imports only what it calls, so a policy carries
//! just what it names. Nothing here is written by hand, and nobody but this crate and its macro uses it.
#![allow(missing_docs, clippy::undocumented_unsafe_blocks)]

pub mod base {
    wit_bindgen::generate!({
        world: "imports",
        path: "../wit",
        generate_all,
        additional_derives: [PartialEq, Eq, Hash],
    });
}

macro_rules! hook {
    ($module:ident, $world:literal, $export:literal) => {
        pub mod $module {
            wit_bindgen::generate!({
                world: $world,
                path: "../wit",
                pub_export_macro: true,
                export_macro_name: $export,
                with: {
                    "lockgate:policy/host@0.1.1": super::base::lockgate::policy::host,
                    "lockgate:policy/types@0.1.1": super::base::lockgate::policy::types,
                },
            });
        }
    };
}

hook!(alias, "alias-policy", "export_alias");
hook!(router, "router-policy", "export_router");
hook!(namespace, "namespace-policy", "export_namespace");
hook!(lifecycle, "lifecycle-policy", "export_lifecycle");

#[cfg(target_arch = "wasm32")]
pub mod wasi {
    wit_bindgen::generate!({
        inline: r#"
            package lockgate:granted;

            world granted {
                import wasi:random/random@0.2.0;
                import wasi:clocks/wall-clock@0.2.0;
                import wasi:clocks/monotonic-clock@0.2.0;
            }

            package wasi:random@0.2.0 {
                interface random {
                    get-random-u64: func() -> u64;
                }
            }

            package wasi:clocks@0.2.0 {
                interface wall-clock {
                    record datetime { seconds: u64, nanoseconds: u32 }
                    now: func() -> datetime;
                }
                interface monotonic-clock {
                    type instant = u64;
                    now: func() -> instant;
                }
            }
        "#,
        generate_all,
    });
}
