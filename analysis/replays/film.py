"""Write pictures atomically as a film, GIF or MP4, with one picture in memory at a time."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from common.files import atomic_path
from common.user_error import UserError

# Each picture has its own palette, so a film of any length needs only one picture in memory.
_GIF_PALETTE = "split[a][b];[a]palettegen=stats_mode=single[p];[b][p]paletteuse=new=1:dither=none"


def write_film(path: Path, frames: Iterable[np.ndarray], size: tuple[int, int], fps: float) -> None:
    """Write a film.

    Args:
        path: of the film; its suffix, `.gif` or `.mp4`, decides the format.
        frames: pictures, (height, width, 3) uint8.
        size: width and height in pixels; both even for MP4.

    Raises:
        UserError: the file cannot be written, or ffmpeg fails.
    """
    import imageio_ffmpeg

    gif = path.suffix.lower() == ".gif"
    coded = {"codec": "gif", "pix_fmt_out": "pal8", "quality": None} if gif else {"codec": "libx264", "quality": 8}
    shaped = ["-lavfi", _GIF_PALETTE, "-f", "gif"] if gif else ["-f", "mp4", "-movflags", "+faststart"]
    with atomic_path(path) as temporary:
        writer = imageio_ffmpeg.write_frames(
            str(temporary), size, fps=fps, macro_block_size=1, output_params=shaped, ffmpeg_log_level="error", **coded
        )
        sent = 0
        try:
            writer.send(None)
            for frame in frames:
                writer.send(np.ascontiguousarray(frame))
                sent += 1
        except OSError as error:
            raise UserError(f"{path} cannot be written: ffmpeg ended early ({str(error).splitlines()[0]})") from None
        finally:
            writer.close()
        _check_whole(path, temporary, sent)


def _check_whole(path: Path, temporary: Path, sent: int) -> None:
    """Refuse a film that lacks pictures: ffmpeg does not report, for example, a full disk at the end."""
    import imageio_ffmpeg

    try:
        written, _ = imageio_ffmpeg.count_frames_and_secs(str(temporary))
    except RuntimeError:
        written = 0
    if written != sent:
        raise UserError(f"{path} cannot be written: only {written} of {sent} frames were written; is the disk full?")
