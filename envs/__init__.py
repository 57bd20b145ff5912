"""Environments. Importing them chooses the OpenGL backend, before dm_control and MuJoCo read the choice."""

from envs import opengl

opengl.choose()
