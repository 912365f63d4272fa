"""Which families of transformers take a bias: the table of docs/transformers.md.

`python tests/test_hf_families.py` writes it, in some minutes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from test_hf import LAYOUT, ONE_KEY
from torch import Tensor

from abc_nb import InputError
from abc_nb.bias import Bias
from abc_nb.bias.sequence import dense_bias, token_count

transformers = pytest.importorskip("transformers")
hf = pytest.importorskip("abc_nb.hf")

PAGE = Path(__file__).parents[1] / "docs" / "transformers.md"
TABLE = re.compile(r"(?<=<!-- families -->\n).*?(?=<!-- end -->)", re.DOTALL)
SMALL = {
    256: "max_position_embeddings n_positions",
    48: "intermediate_size ffn_dim decoder_ffn_dim encoder_ffn_dim n_inner d_ff moe_intermediate_size ffn_hidden_size "
    "shared_expert_intermediate_size intermediate_size_mlp",
    40: "vocab_size",
    32: "hidden_size d_model n_embd dim word_embed_proj_dim embedding_size emb_dim",
    16: "q_lora_rank kv_lora_rank",
    8: "qk_rope_head_dim qk_nope_head_dim v_head_dim",
    4: "num_attention_heads n_head n_heads decoder_attention_heads encoder_attention_heads num_heads num_experts "
    "num_local_experts n_routed_experts rotary_dim",
    2: "num_hidden_layers n_layer n_layers decoder_layers encoder_layers num_layers num_decoder_layers "
    "num_encoder_layers num_experts_per_tok num_kv_heads",
}
SIZES = {name: size for size, names in SMALL.items() for name in names.split()}
TAKEN = "taken"
UNBUILT = "not built from a small configuration here"
REFUSED = {  # by what the sentence says
    "does not use the AttentionInterface": "refused: no `AttentionInterface`",
    "layers without full attention": "refused: windows, recurrent or sparse layers",
    "takes no bias": "refused: the attention is of another kind",
    "cannot be run": "refused: does not run on tokens alone, or not so small",
}
SAMPLE = ("llama", "gpt2", "gpt_oss", "deepseek_v3", "bart", "roberta", "gptj", "inkling_text", "minimax", "git")


def names() -> dict[str, Any]:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return dict(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def settings(config: Any) -> dict[str, Any]:
    """Small sizes, full attention and token ids of the small vocabulary, for what a configuration has."""
    facts = config.to_dict()
    found: dict[str, Any] = {name: size for name, size in SIZES.items() if name in facts}
    low_rank = "kv_lora_rank" in facts
    one = {"num_key_value_heads": 4 if low_rank else 2, "is_decoder": True} | ({} if low_rank else {"head_dim": 8})
    one |= {"layer_types": ["full_attention"] * 2} if facts.get("layer_types") else {"sliding_window": None}
    found |= {name: value for name, value in one.items() if name in facts}
    ids = [name for name, value in facts.items() if name.endswith("token_id") and isinstance(value, int)]
    found |= {name: 39 - number % 8 for number, name in enumerate(ids)}
    parts = {name: getattr(config, name, None) for name in getattr(config, "sub_configs", {})}
    return found | {name: settings(part) for name, part in parts.items() if part is not None}


def without(found: dict[str, Any], said: str) -> bool:
    """Take out what an error speaks of; False if that is nothing."""
    spoken = [name for name in found if re.search(rf"\b{name}\b", said)]
    for name in spoken:
        del found[name]
    return bool(spoken) | any([without(part, said) for part in found.values() if isinstance(part, dict)])


def built(family: str) -> Any:
    """A small model, all of whose weights are noise; None if its configuration is not so easily made small."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind, name = CONFIG_MAPPING[family], names()[family]
    made = getattr(transformers, name if isinstance(name, str) else name[0])
    torch.manual_seed(0)
    try:
        found = settings(kind())
        for _ in range(6):
            try:
                model = made(kind(**found)).eval()
                break
            except Exception as error:
                if not without(found, str(error)):
                    return None
        for weights in model.parameters():
            weights.data += 0.2 * torch.randn_like(weights)
        return model
    except Exception:
        return None


@torch.no_grad()
def verdict(family: str) -> str:
    """The row of the table; an error where a family that takes a bias does not act by it."""
    model = built(family)
    if model is None:
        return UNBUILT
    try:
        with hf.attach(model, ONE_KEY, LAYOUT) as handle:
            reached(model, handle)
            return TAKEN
    except InputError as error:
        return next(row for said, row in REFUSED.items() if said in str(error))


def reached(model: Any, handle: Any) -> None:
    """A token changes what tokens see that open keys lead to, layer by layer, and nothing else."""
    count = token_count(LAYOUT)
    tokens = torch.randint(10, (1, count), generator=torch.Generator().manual_seed(5)).repeat(2, 1)
    tokens[1, 1] = (tokens[0, 1] + 1) % 10
    paths = torch.eye(count).bool()
    for layer, _ in enumerate(handle.layers):
        seen = (dense_bias(ONE_KEY, LAYOUT, min(layer, 1), handle.heads) > -torch.inf).any(0)
        paths |= (seen.float() @ paths.float()) > 0
    assert 0 < paths[:, 1].sum() < count
    change = changes(model, tokens)
    assert change[~paths[:, 1]].max() < 1e-5 * change.max()
    with handle.lent(bias=Bias()):
        assert changes(model, tokens)[2:].min() > 0


def changes(model: Any, tokens: Tensor) -> Tensor:
    """How much the logits of each token of two rows differ."""
    first, second = model(input_ids=tokens, use_cache=False).logits
    found: Tensor = (first - second).abs().amax(1)
    return found


def table() -> str:
    rows: dict[str, list[str]] = {row: [] for row in (TAKEN, *REFUSED.values(), UNBUILT)}
    for family in names():
        rows[verdict(family)].append(family)
    listed = {row: "all others" if row == TAKEN else ", ".join(found) for row, found in rows.items()}
    head = f"| transformers {transformers.__version__} | | families |\n| --- | --- | --- |\n"
    return head + "".join(f"| {row} | {len(rows[row])} | {shown} |\n" for row, shown in listed.items())


def on_page() -> str:
    found = TABLE.search(PAGE.read_text(encoding="utf-8"))
    assert found is not None
    if f"transformers {transformers.__version__} " not in found[0]:
        pytest.skip("the page's table is that of another version of transformers")
    return found[0]


@pytest.mark.parametrize("family", SAMPLE)
def test_a_family_is_where_the_page_says(family: str) -> None:
    rows = [line for line in on_page().splitlines() if re.search(rf"[ ,]{family}[, ]", line)]
    refused = [verdict(family)] if verdict(family) != TAKEN else []  # the page names no family that is taken
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == refused


@pytest.mark.long
def test_every_family_is_where_the_page_says() -> None:
    assert table() == on_page()


if __name__ == "__main__":
    PAGE.write_text(TABLE.sub(lambda _: table(), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
