from asv_project import make_project

__all__ = ["make_project"]
