"""takeru: learnt identity embeddings, other entities visible to the action heads only; published without a memory."""

from activation_store.layers import MemoryCell
from agent_zoo.agent_settings import RewardRules
from agent_zoo.base import RecurrentPolicy
from agent_zoo.linear_rows import LinearRowsPolicy
from agent_zoo.network_parts.layers import (
    ENTITY_ID,
    ENTITY_SCALES,
    MESSAGE,
    NPC_TYPE,
    EmbeddedRowFeatures,
    RowFeatures,
    item_features,
)
from agent_zoo.network_parts.published_features import clipped_entity_features, scaled_item_features
from agent_zoo.observation import ObservationLayout
from agent_zoo.rewards import WeightedReward

__all__ = ["EarlierPolicy", "Policy", "Recurrent", "RewardWrapper"]

IDENTITY_EMBEDDING = 32
DISCRETE_COLUMNS = {"id": ENTITY_ID, "npc_type": NPC_TYPE, "attacker_id": ENTITY_ID, "message": MESSAGE}


class Policy(LinearRowsPolicy):
    """Reads no entities but the agent itself.

    As published, it reads items place by place, and four columns of entities share one short table of embeddings.
    """

    linear_parts = ("tiles", "own row", "inventory", "market", "task")
    tile_channels = (16, 8)
    embeds_places = reads_entities = False
    reads_item_places = True

    def row_features(self, layout: ObservationLayout) -> tuple[RowFeatures, RowFeatures]:
        """Build what turns rows of entities, and of items, into features."""
        if self.published:
            return clipped_entity_features(layout), scaled_item_features(layout)
        entity = EmbeddedRowFeatures(layout.entity_columns, DISCRETE_COLUMNS, ENTITY_SCALES, IDENTITY_EMBEDDING)
        return entity, item_features(layout)


class EarlierPolicy(Policy):
    """The network before it computed what the published one does.

    Rows and the task are rectified, the inventory is a mean, and each column of entities has a table of its own.
    """

    published = False


class Recurrent(RecurrentPolicy):
    """Feed-forward by default."""

    def __init__(self, policy: Policy, layers: int = 0, cell: MemoryCell = "lstm"):
        super().__init__(policy, layers, cell)


class RewardWrapper(WeightedReward):
    """Task reward, and +0.01 per kind of event new to this life (at most 3 a tick). Giving is illegal."""

    default = RewardRules(explore=0.01, disable_give=True)
