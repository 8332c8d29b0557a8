# A Lockgate policy in Python: what fits a shell pattern is not listed.
#
# Its configuration: {"hide": ["notes/delete_*", "*/internal-*"], "hide_titles": ["*(beta)*"]}
# A pattern is BACKEND/NAME; titles are what backends show to people.
#
# An interface of the contract is a class of the same name; its functions are those of wit/policy.wit in snake_case. Err(...) is
# raised for the `failure`. The session is lent for the call: do not keep it.

import json
from fnmatch import fnmatchcase

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports.types import Failure_BadSetting, Verdict_Hide, Verdict_Keep


def patterns(session):
    try:
        setting = json.loads(session.setting()) or {}
        return setting.get("hide", []), setting.get("hide_titles", [])
    except (ValueError, AttributeError) as error:
        raise Err(Failure_BadSetting(str(error)))


def is_hidden(hide, hide_titles, item):
    name = f"{item.backend}/{item.name}"
    return any(fnmatchcase(name, p) for p in hide) or any(fnmatchcase(item.title or "", p) for p in hide_titles)


class Namespace(exports.Namespace):
    def expose(self, s, kind, items):
        hide, hide_titles = patterns(s)
        return [Verdict_Hide() if is_hidden(hide, hide_titles, item) else Verdict_Keep() for item in items]

    def resolve(self, s, kind, public):
        return None
