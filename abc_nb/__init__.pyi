"""What `abc_nb` offers, for type checkers and editors."""

from abc_nb.api import answer as answer
from abc_nb.api import certify as certify
from abc_nb.api import load as load
from abc_nb.bias.lines import Lines as Lines
from abc_nb.calibration.calibrate import PAPER as PAPER
from abc_nb.calibration.calibrate import Calibration as Calibration
from abc_nb.calibration.calibrate import calibrate as calibrate
from abc_nb.calibration.calibrate_model import bias_from_attention as bias_from_attention
from abc_nb.calibration.calibrate_model import calibrate_model as calibrate_model
from abc_nb.calibration.calibrate_model import coverage as coverage
from abc_nb.certificates.certify import certify_model as certify_model
from abc_nb.common.errors import InputError as InputError
from abc_nb.model.transformer import ModelConfig as ModelConfig
from abc_nb.model.transformer import Transformer as Transformer
from abc_nb.problems.layouts import Layout as Layout
from abc_nb.problems.layouts import Operand as Operand
from abc_nb.problems.rules import Input as Input
from abc_nb.problems.rules import Rule as Rule
from abc_nb.problems.rules import cell as cell
from abc_nb.problems.rules import operand as operand
from abc_nb.problems.sampling import Batch as Batch
from abc_nb.problems.sampling import Sampler as Sampler
from abc_nb.problems.tasks import Task as Task
from abc_nb.show.explorers.attention import explore_attention as explore_attention
from abc_nb.show.explorers.calibration import explore_calibration as explore_calibration
from abc_nb.show.explorers.painting import explore_painting as explore_painting
from abc_nb.specs.spec import spec as spec
from abc_nb.taught import teach as teach
from abc_nb.training.evaluation import evaluate as evaluate
from abc_nb.training.evaluation import greedy as greedy
from abc_nb.training.fit import fit as fit
from abc_nb.training.problems import train as train
from abc_nb.training.recipe import TrainingConfig as TrainingConfig

__version__: str
