"""k(z, z′): how alike two lifted locations are."""

from loca.kernels.combinations import Product as Product
from loca.kernels.combinations import Scaled as Scaled
from loca.kernels.combinations import Sum as Sum
from loca.kernels.kernel import Kernel as Kernel
from loca.kernels.laplacian import Laplacian as Laplacian
from loca.kernels.matern import Matern as Matern
from loca.kernels.rational_quadratic import RationalQuadratic as RationalQuadratic
from loca.kernels.rbf import RBF as RBF

__all__ = ["RBF", "Kernel", "Laplacian", "Matern", "Product", "RationalQuadratic", "Scaled", "Sum"]
