"""Every reader of the project, for `tests/test_fuzz.py`. A new one is registered here, where its like are."""

from tests.readers import dumps, files, findings, results, trainings  # noqa: F401

_OWN, _BYTES = "reads what the same command has just written", "compares or copies bytes, whatever they are"
ELSEWHERE = {
    "agent_zoo.checkpoint:copy_checkpoint": _BYTES,
    "share:pull": "as all policies",
    "share:push": "as all policies",
    "agent_zoo.original.file:_steps": "fuzzed with the file beside it, in tests/agent_zoo/original",
    "analysis.clusters.outputs:report_html": _OWN,
    "analysis.dynamics.perturbations:_read": "a finished run, by finished_files",
    "analysis.explorer.edits:read_edits": "a finished run, by finished_files",
    "analysis.explorer.tracks:_features": "a finished run, by finished_files, and its dictionary, as all of them",
    "analysis.findings.page:write_claims": _BYTES,
    "analysis.findings.running:_last_line": "shows a line of any log",
    "analysis.findings.running:_named": "as the state of a study",
    "analysis.interventions.play.intervention_run:moments_by_group": "as all files of tensors",
    "analysis.pages.pages:picture": _OWN,
    "analysis.runs.run_folder:__enter__": _BYTES,
    "analysis.world_model.training:restore": "as the training of an autoencoder; in tests/analysis/world_model",
    "reinforcement_learning.compiled_game:_key": "hashes its own sources",
    "reinforcement_learning.game.maps:_write_if_changed": _BYTES,
    "reinforcement_learning.game.maps:read_maps": _BYTES,
    "reinforcement_learning.original_policies:_made": _OWN,
    "reinforcement_learning.original_policies:write_all": _BYTES,
}
"""Functions that open files and need no test here, and why."""
