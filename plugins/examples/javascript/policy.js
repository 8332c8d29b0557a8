// A Lockgate policy in JavaScript: calls whose name fits a regular expression are refused, with a reason.
//
// Its configuration: { "refuse": [{ "name": "^(drop|delete)_", "backend": "^notes$", "reason": "ask ops" }] }
// `backend` and `reason` may be left out. The first rule that fits decides.
//
// An interface of the contract is an export of this module; its functions are those of wit/policy.wit in camelCase. A variant is
// { tag, val }; what is thrown as { tag, val } is the `failure`. The session is lent for the call: do not keep it.

// Memory of the module serves one session, and may be gone at the next call: good for a cache, and for nothing else.
let cached = { text: undefined, rules: [] };

function rules(session) {
  const text = session.setting();
  if (text !== cached.text) cached = { text, rules: parse(text) };
  return cached.rules;
}

function parse(text) {
  try {
    return (JSON.parse(text)?.refuse ?? []).map(({ name, backend = '', reason = 'not allowed here' }) => ({
      name: new RegExp(name, 'u'),
      backend: new RegExp(backend, 'u'),
      reason,
    }));
  } catch (error) {
    throw { tag: 'bad-setting', val: String(error) };
  }
}

export const router = {
  resolve(session, kind, publicName, target) {
    const rule = rules(session).find((r) => r.name.test(target.name) && r.backend.test(target.backend));
    if (!rule) return { tag: 'pass' };
    session.log('info', `${session.principal()} is refused ${publicName}`);
    return { tag: 'refuse', val: rule.reason };
  },
};
