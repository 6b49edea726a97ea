"""k(z, z′): the similarity of two lifted locations."""

from loca.kernels.kernel import Kernel as Kernel
from loca.kernels.kernel import Product as Product
from loca.kernels.kernel import Scaled as Scaled
from loca.kernels.kernel import Sum as Sum
from loca.kernels.stationary import RBF as RBF
from loca.kernels.stationary import Laplacian as Laplacian
from loca.kernels.stationary import Matern as Matern
from loca.kernels.stationary import RationalQuadratic as RationalQuadratic

__all__ = ["RBF", "Kernel", "Laplacian", "Matern", "Product", "RationalQuadratic", "Scaled", "Sum"]
