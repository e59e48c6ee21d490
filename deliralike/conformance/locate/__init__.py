"""Where a candidate differs: each block and function is judged alone, at the reference's inputs."""
