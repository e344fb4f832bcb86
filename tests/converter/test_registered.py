"""Registered configurations, processors and signature filters as plain Python."""

import ast
import textwrap

from maxcode.converter.context import Context
from maxcode.converter.registered import plain_classes
from maxcode.converter.support.registered import Registered, Valued


def rewritten(source):
    tree = ast.parse(textwrap.dedent(source))
    plain_classes(Context(None, {}, "m.C"), tree.body[0])
    return ast.unparse(tree.body[0])


def test_arguments_are_kept_as_the_configuration():
    found = rewritten("""
    class C:
        @register_to_config
        def __init__(self, a, b=2, *, device=None):
            self.a = a
            self.register_to_config(b=b + 1)
            self.set_processor(P())
    """)
    assert "self.config = Registered(a=a, b=b)" in found
    assert "self.config = self.config.replace(b=b + 1)" in found
    assert "self.processor = P()" in found


def test_a_filter_by_signature_goes_with_its_warning():
    found = rewritten("""
    class C:
        def forward(self, x, **kwargs):
            known = set(inspect.signature(self.processor.__call__).parameters.keys())
            unused = [k for k, _ in kwargs.items() if k not in known]
            if len(unused) > 0:
                logger.warning(f"{unused}")
            kwargs = {k: w for k, w in kwargs.items() if k in known}
            return self.processor(self, x, **kwargs)
    """)
    assert found.split("def forward(self, x, **kwargs):")[1].strip() == "return self.processor(self, x, **kwargs)"


def test_another_comprehension_stays():
    source = """
    class C:
        def forward(self, x, **kwargs):
            known = set(inspect.signature(self.f).parameters.keys())
            kwargs = {k: w + 1 for k, w in kwargs.items() if k in known}
            return x
    """
    assert "w + 1" in rewritten(source)


def test_registered_values_are_hashable_and_frozen():
    one, two = Registered(a=[1, 2], b={"c": 3}), Registered(a=[1, 2], b={"c": 3})
    assert one == two
    assert hash(one) == hash(two)
    assert one.a[1] == 2
    assert one["b"]["c"] == 3
    assert one.replace(a=1).a == 1
    assert one.get("z", 5) == 5
    assert not hasattr(one, "z")


def test_objects_of_one_class_and_content_are_equal():
    class Same(Valued):
        def __init__(self, x):
            self.x = x

    assert Same(1) == Same(1)
    assert hash(Same(1)) == hash(Same(1))
    assert Same(1) != Same(2)
