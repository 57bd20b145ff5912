from pathlib import Path

import imageio.v3 as iio
import probes

import plot


def test_a_runs_curves_are_drawn_at_its_end(tmp_path: Path) -> None:
    probes.train(tmp_path, "agent=sac_v", "env=ProbeTimeLimit-v0", "agent.value.hidden_dim=16", "save_figure=true")
    picture = iio.imread(tmp_path / "curves.png")
    assert (
        picture.shape[0] > 500 and picture.shape[1] > 1000
    )  # two rows of panels: return, losses, temperature, entropy
    assert picture[..., :3].std() > 10
    columns = plot.read(tmp_path / "train.csv")
    assert {"actor_loss", "critic_loss", "value_loss", "alpha_loss", "alpha_value"} <= set(columns)
    steps, values = columns["critic_loss"]
    assert steps[0] > 100 and len(steps) == len(values)  # rows before the first update are blank, not zero


def test_an_empty_folder_still_draws(tmp_path: Path) -> None:
    assert plot.draw_run(tmp_path).exists()
