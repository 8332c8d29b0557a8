//! What `wit-bindgen` makes of `wit/`: one module per hook world, all sharing the types of `base`.
//! A component exports a hook only where its export macro is used, so a policy carries just the hooks that it names in
//! [`export!`](crate::export). Nothing here is written by hand, and nobody but this crate and its macro uses it.
#![allow(missing_docs, clippy::undocumented_unsafe_blocks)]

pub mod base {
    wit_bindgen::generate!({ world: "imports", path: "../wit", generate_all });
}

pub mod alias {
    wit_bindgen::generate!({
        world: "alias-policy",
        path: "../wit",
        pub_export_macro: true,
        export_macro_name: "export_alias",
        with: {
            "lockgate:policy/host@0.1.1": super::base::lockgate::policy::host,
            "lockgate:policy/types@0.1.1": super::base::lockgate::policy::types,
        },
    });
}

pub mod namespace {
    wit_bindgen::generate!({
        world: "namespace-policy",
        path: "../wit",
        pub_export_macro: true,
        export_macro_name: "export_namespace",
        with: {
            "lockgate:policy/host@0.1.1": super::base::lockgate::policy::host,
            "lockgate:policy/types@0.1.1": super::base::lockgate::policy::types,
        },
    });
}
