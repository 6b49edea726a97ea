"""k(z, z′): the similarity of two lifted locations."""

from loca.kernels.kernel import Kernel as Kernel
from loca.kernels.kernel import Product as Product
from loca.kernels.kernel import Scaled as Scaled
from loca.kernels.kernel import Sum as Sum
from loca.kernels.laplacian import Laplacian as Laplacian
from loca.kernels.matern import Matern as Matern
from loca.kernels.rational_quadratic import RationalQuadratic as RationalQuadratic
from loca.kernels.rbf import RBF as RBF

__all__ = ["RBF", "Kernel", "Laplacian", "Matern", "Product", "RationalQuadratic", "Scaled", "Sum"]
